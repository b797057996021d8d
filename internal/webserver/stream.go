package webserver

import (
	"net/http"
	"time"
)

// writeLimit ends a stream whose reader does not read.
const writeLimit = 10 * time.Second

// Stream is a continuing answer: it outlives the server's limits on a request and its answer, and
// each Write reaches the reader at once.
type Stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// NewStream starts the answer; its headers must be set before.
func NewStream(w http.ResponseWriter) *Stream {
	s := &Stream{w, http.NewResponseController(w)}
	s.until(time.Time{})
	_ = s.out.SetReadDeadline(time.Time{}) // not every server has one
	_ = s.out.Flush()
	return s
}

// Write sends all of b. It fails after writeLimit if the reader does not read.
func (s *Stream) Write(b []byte) (int, error) {
	s.until(time.Now().Add(writeLimit))
	defer s.until(time.Time{}) // over HTTP/2 a deadline would end a silent stream, too
	n, err := s.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, s.out.Flush()
}

func (s *Stream) until(t time.Time) { _ = s.out.SetWriteDeadline(t) }
