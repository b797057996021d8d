package dockerproxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/dockerproxy"
)

// engine stands for one: it says what it was asked, and never ends its events.
func engine(t *testing.T) (dial func(context.Context) (net.Conn, error)) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+string(body)+"\n")
		if strings.HasSuffix(r.URL.Path, "/events") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
}

func proxy(t *testing.T, client string) string {
	t.Helper()
	s := httptest.NewServer(dockerproxy.New(dockerproxy.Options{Dial: engine(t), Allow: dockerproxy.Clients[client]}))
	t.Cleanup(s.Close)
	return s.URL
}

func ask(t *testing.T, method, url, body string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	a, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

func TestCalls(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	exporter, actuator := "exporter", "actuator"
	for call, passes := range map[string][]string{
		"GET /_ping":      {exporter, actuator},
		"HEAD /_ping":     {exporter, actuator},
		"GET /info":       {exporter, actuator},
		"GET /v1.41/info": {exporter, actuator},
		"GET /v1.41/containers/json?all=1&filters={}":  {exporter},
		"GET /v1.41/containers/" + id + "/json":        {exporter, actuator},
		"POST /v1.51/containers/" + id + "/pause":      {actuator},
		"POST /containers/" + id + "/unpause":          {actuator},
		"POST /_ping":                                  nil,
		"GET /version":                                 nil,
		"GET /v2.0/info":                               nil,
		"GET /v1.41/v1.41/info":                        nil,
		"GET /v1.41//info":                             nil,
		"GET /info/":                                   nil,
		"GET /infos":                                   nil,
		"GET /xinfo":                                   nil,
		"GET /%69nfo":                                  nil,
		"GET /containers/name/json":                    nil, // it might be pause/../../x
		"GET /containers/" + id + "/logs":              nil,
		"GET /containers/" + id + "/archive?path=/etc": nil,
		"GET /containers/" + id + "/attach/ws":         nil,
		"GET /containers/" + id + "/../json":           nil,
		"POST /containers/" + id + "/json":             nil,
		"POST /containers/" + id + "/kill":             nil,
		"POST /containers/" + id + "/exec":             nil,
		"POST /containers/" + id + "/pause/../update":  nil,
		"POST /containers/" + id + "/pause%2f..":       nil,
		"POST /containers/" + id + "%0a/pause":         nil,
		"POST /containers/create":                      nil,
		"DELETE /containers/" + id:                     nil,
		"CONNECT /_ping":                               nil,
	} {
		for _, client := range []string{exporter, actuator} {
			method, path, _ := strings.Cut(call, " ")
			code, text := ask(t, method, proxy(t, client)+path, "", nil)
			want := http.StatusForbidden
			for _, p := range passes {
				if p == client {
					want = http.StatusOK
				}
			}
			if code != want {
				t.Errorf("%s: %s: %d, want %d", client, call, code, want)
			}
			if want == http.StatusOK && method != http.MethodHead && text != method+" "+path+" \n" {
				t.Errorf("%s: %s: the engine was asked %q", client, call, text)
			}
			if want != http.StatusOK && !strings.HasPrefix(text, `{"message":"docker-proxy: `) {
				t.Errorf("%s: %s: %q", client, call, text)
			}
		}
	}
}

func TestBodiesAndUpgradesDoNotPass(t *testing.T) {
	url := proxy(t, "actuator") + "/containers/" + strings.Repeat("a", 64) + "/pause"
	if code, text := ask(t, http.MethodPost, url, "payload", nil); code != http.StatusOK || strings.Contains(text, "payload") {
		t.Errorf("%d %s", code, text)
	}
	for _, protocol := range []string{"tcp", "websocket", "h2c"} {
		h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}}
		if code, text := ask(t, http.MethodPost, url, "", h); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", protocol, code, text)
		}
	}
}

// An event arrives when it happens, and the engine learns when the client goes.
func TestEventsAreStreamed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy(t, "exporter")+"/v1.41/events?since=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if line, err := bufio.NewReader(a.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "GET /v1.41/events?since=1") {
		t.Errorf("%q %v", line, err)
	}
}

func TestEngineAway(t *testing.T) {
	s := httptest.NewServer(dockerproxy.New(dockerproxy.Options{
		Dial:  func(context.Context) (net.Conn, error) { return nil, errors.New("no such file") },
		Allow: dockerproxy.Clients["exporter"],
	}))
	defer s.Close()
	if code, text := ask(t, http.MethodGet, s.URL+"/info", "", nil); code != http.StatusBadGateway || strings.Contains(text, "no such file") {
		t.Errorf("%d %s", code, text)
	}
}
