package collector

import (
	"bytes"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// spares keeps the page of one scrape for the next. A sync.Pool would not do: each
// collection of garbage empties it, and to make the same page again was most of the
// garbage that there was. Scrapes at the same time make pages of their own.
type spares chan *page

func (s spares) get() *page {
	select {
	case p := <-s:
		return p
	default:
		return newPage()
	}
}

func (s spares) put(p *page) {
	select {
	case s <- p:
	default:
	}
}

// Answer gathers, and returns what that gives in a format of package expfmt, as that
// package writes it. The bytes are valid until done is called.
func (c *Collector) Answer(format expfmt.Format) (answer []byte, done func(), err error) {
	p := c.spares.get()
	done = func() { c.spares.put(p) }
	families, err := c.gather(p)
	if err != nil {
		return nil, done, err
	}
	switch kind := format.FormatType(); kind {
	case expfmt.TypeTextPlain, expfmt.TypeOpenMetrics:
		p.answer, err = Text(p.answer[:0], families, kind == expfmt.TypeOpenMetrics)
	case expfmt.TypeProtoDelim:
		p.answer, err = delimited(p.answer[:0], families)
	default: // for people who look at protobuf
		p.answer, err = others(p.answer[:0], families, format)
	}
	return p.answer, done, err
}

// delimited appends each family in protobuf, with its length before it.
func delimited(out []byte, families []*dto.MetricFamily) (_ []byte, err error) {
	for _, f := range families {
		out = protowire.AppendVarint(out, uint64(proto.Size(f)))
		if out, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(out, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func others(out []byte, families []*dto.MetricFamily, format expfmt.Format) ([]byte, error) {
	buffer := bytes.NewBuffer(out)
	encoder := expfmt.NewEncoder(buffer, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), nil
}
