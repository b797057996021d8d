package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/webserver"
)

const aboutBytes = `What one node sends about itself. P2's node sends its state, its float time and its use of GPU memory, 1 + 10 + 5 bytes, when the master
asks (Table 3). Ours sends every series that the exporter has, whenever Prometheus scrapes, to anybody who reads metrics: the answer to
one scrape on a connection that stays open, HTTP's headers included, TCP's not; as Prometheus asks for it (gzip), and plain. The nodes are made up by the
exporter's own collector.`

// Bytes is P2's Table 3.
func Bytes() bench.Experiment {
	return bench.Experiment{
		Name: "bytes", Title: "Bytes that a node sends about itself (P2, Table 3)", About: aboutBytes,
		Run: runBytes, Figures: byteFigures, Table: byteTable,
	}
}

// scraped is the way of our rows.
const scraped = "a scrape"

// nodeSize is a node of so many GPUs and containers.
type nodeSize struct{ gpus, containers int }

var nodeSizes = []nodeSize{{1, 1}, {1, 10}, {gpusPerNode, containersPerNode}, {8, 20}, {8, 100}}

func runBytes(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	for _, size := range nodeSizes {
		row := bench.Row{"way": scraped, "gpus": float64(size.gpus), "containers": float64(size.containers)}
		for key, encoding := range map[string]string{"sent_bytes": "gzip", "plain_bytes": "identity"} {
			sent, body, err := answerOf(ctx, env.Seed, size, encoding)
			if err != nil {
				return rows, err
			}
			row[key], row["body_"+key] = float64(sent), float64(body)
		}
		rows = append(rows, row, bench.Row{"way": asked, "gpus": row["gpus"], "containers": row["containers"], "sent_bytes": float64(answer)})
	}
	return rows, nil
}

// counted counts what a connection has received: at the sender's end it would be known too late.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// answerOf scrapes a node twice on one connection, and returns what the second answer came to.
func answerOf(ctx context.Context, seed uint64, size nodeSize, encoding string) (sent, body int64, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	now, count := time.Unix(1_800_000_000, 0), new(atomic.Int64)
	s := snapshotOf(rand.New(rand.NewPCG(seed, 0)), now, size.gpus, size.containers)
	web := &http.Server{Handler: webserver.Metrics(registryOf(s, now), slog.New(slog.DiscardHandler), promhttp.HandlerOpts{}), ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(listener) //nolint:errcheck // it ends by Close
	defer web.Close()      // nothing is under way
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return counted{conn, count}, err
	}}}
	defer client.CloseIdleConnections()
	for range 2 {
		count.Store(0)
		if body, err = scrapeOnce(ctx, client, "http://"+listener.Addr().String(), encoding); err != nil {
			return 0, 0, err
		}
	}
	return count.Load(), body, nil
}

// accept is what a Prometheus server without native histograms asks for.
const accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2"

// scrapeOnce returns the length of the answer's body as sent.
func scrapeOnce(ctx context.Context, client *http.Client, url, encoding string) (body int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", encoding)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	body, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("scrape: %s", resp.Status))
	}
	return body, errors.Join(err, resp.Body.Close())
}

func ofSize(way string, size nodeSize) func(bench.Row) bool {
	return func(r bench.Row) bool {
		return r.Str("way") == way && int(r.Num("gpus")) == size.gpus && int(r.Num("containers")) == size.containers
	}
}

func byteFigures(rows []bench.Row) (out []bench.Figure) {
	for _, size := range nodeSizes {
		ours, theirs := bench.Column(rows, "sent_bytes", ofSize(scraped, size)), bench.Column(rows, "sent_bytes", ofSize(asked, size))
		v := bench.Median(ours)
		out = append(out, bench.Figure{Name: fmt.Sprintf("node_bytes_%dgpus_%dcontainers", size.gpus, size.containers), Value: v, Unit: "bytes",
			Against: asked, Ratio: v / bench.Median(theirs), Runs: len(ours)})
	}
	return out
}

func byteTable(rows []bench.Row) [][]string {
	lines := [][]string{{"GPUS", "CONTAINERS", "WAY", "BYTES", "PLAIN"}}
	for _, r := range rows {
		lines = append(lines, []string{bench.Number(r.Num("gpus")), bench.Number(r.Num("containers")), r.Str("way"),
			bench.Number(r.Num("sent_bytes")), bench.Number(r.Num("plain_bytes"))})
	}
	return lines
}
