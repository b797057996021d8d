package access

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Sessions let a person with a token act from a browser: the token is exchanged
// for a cookie that names a session and is worth nothing elsewhere. A session
// ends with its token, with this process, and SessionLength after it began.
type Sessions struct {
	tokens *Tokens
	now    func() time.Time

	mu  sync.Mutex
	all map[[32]byte]session // by the cookie's hash
}

type session struct {
	token   [32]byte // its hash
	expires time.Time
}

// SessionLength is how long a session lasts.
const SessionLength = 12 * time.Hour

const (
	cookie = "laxity-session"
	// maxSessions bounds the memory; the one that ends first makes room.
	maxSessions = 1000
)

// Errors of Sessions.
var (
	ErrSignedOut = errors.New("sign in with one of the tokens")
	ErrWrong     = errors.New("that is none of the tokens")
)

// NewSessions keeps sessions for those who know one of the tokens; now is the
// clock, time.Now by default.
func NewSessions(tokens *Tokens, now func() time.Time) *Sessions {
	if now == nil {
		now = time.Now
	}
	return &Sessions{tokens: tokens, now: now, all: map[[32]byte]session{}}
}

// SignIn begins a session and sets its cookie, or says why not. Wrong tokens are not
// counted: a count would lock the right one out, a token is too long to be guessed,
// and Guard.All bounds how often a client may ask.
func (s *Sessions) SignIn(w http.ResponseWriter, r *http.Request, token string) error {
	hash := sha256.Sum256([]byte(token))
	known, err := s.tokens.knows(hash)
	if err != nil {
		return err
	}
	if !known {
		return ErrWrong
	}
	now, value := s.now(), rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(now)
	s.all[sha256.Sum256([]byte(value))] = session{token: hash, expires: now.Add(SessionLength)}
	http.SetCookie(w, s.cookie(r, value, int(SessionLength/time.Second)))
	return nil
}

// makeRoom forgets sessions that are over, and beyond the bound the oldest.
func (s *Sessions) makeRoom(now time.Time) {
	var first [32]byte
	for id, one := range s.all {
		if !one.expires.After(now) {
			delete(s.all, id)
		} else if oldest, ok := s.all[first]; !ok || one.expires.Before(oldest.expires) {
			first = id
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, first)
	}
}

// cookie is sent to this host alone, to no script, and with no request that
// another site caused.
func (s *Sessions) cookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookie, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}

// Check reports whether the request belongs to a session whose token still
// counts; ErrSignedOut if it does not.
func (s *Sessions) Check(r *http.Request) error {
	c, err := r.Cookie(cookie)
	if err != nil {
		return ErrSignedOut
	}
	s.mu.Lock()
	one, ok := s.all[sha256.Sum256([]byte(c.Value))]
	s.mu.Unlock()
	if !ok || !one.expires.After(s.now()) {
		return ErrSignedOut
	}
	known, err := s.tokens.knows(one.token)
	if err != nil {
		return err
	}
	if !known {
		return ErrSignedOut
	}
	return nil
}

// SignOut ends the request's session and takes its cookie back.
func (s *Sessions) SignOut(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookie); err == nil {
		s.mu.Lock()
		delete(s.all, sha256.Sum256([]byte(c.Value)))
		s.mu.Unlock()
	}
	http.SetCookie(w, s.cookie(r, "", -1))
}
