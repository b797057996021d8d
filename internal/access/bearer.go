package access

import "net/http"

// Bearer sends the first token of a file, read anew for each request, to one program.
type Bearer struct {
	Path string
	Next http.RoundTripper // http.DefaultTransport if nil
}

// RoundTrip implements http.RoundTripper. It fails where the file holds no token.
func (b Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	tokens, err := ReadTokens(b.Path)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+tokens[0])
	if b.Next == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	return b.Next.RoundTrip(r)
}
