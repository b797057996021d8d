package access_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/access"
)

const first, second = "0123456789abcdef-one", "0123456789abcdef-two"

func sessions(t *testing.T) (*access.Sessions, *time.Time, string) {
	t.Helper()
	path := write(t, first+"\n"+second)
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return access.NewSessions(tokens, func() time.Time { return now }), &now, path
}

// signIn returns the cookie that a token is exchanged for.
func signIn(s *access.Sessions, token string, over *tls.ConnectionState) (*http.Cookie, error) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", nil)
	r.TLS = over
	if err := s.SignIn(w, r, token); err != nil {
		return nil, err
	}
	return w.Result().Cookies()[0], nil
}

func with(c *http.Cookie) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if c != nil {
		r.AddCookie(c)
	}
	return r
}

func TestSessions(t *testing.T) {
	s, now, path := sessions(t)
	one, err := signIn(s, first, nil)
	if err != nil {
		t.Fatal(err)
	}
	if one.Value == first || !one.HttpOnly || one.SameSite != http.SameSiteStrictMode || one.Secure {
		t.Errorf("cookie %v", one)
	}
	two, err := signIn(s, second, &tls.ConnectionState{})
	if err != nil || !two.Secure || two.Value == one.Value {
		t.Errorf("cookie over TLS %v, %v", two, err)
	}
	signedIn := func(c *http.Cookie) bool { return s.Check(with(c)) == nil }
	if !signedIn(one) || !signedIn(two) || signedIn(nil) || signedIn(&http.Cookie{Name: one.Name, Value: first}) || signedIn(&http.Cookie{Name: one.Name, Value: one.Value + "x"}) {
		t.Error("who is signed in is not, or the other way round")
	}
	if _, err := signIn(s, first+"x", nil); !errors.Is(err, access.ErrWrong) {
		t.Errorf("a wrong token: %v", err)
	}
	// Signed out is one alone.
	w := httptest.NewRecorder()
	s.SignOut(w, with(two))
	if signedIn(two) || !signedIn(one) || w.Result().Cookies()[0].MaxAge >= 0 {
		t.Error("signed out wrongly")
	}
	// A session ends with its token, and by itself.
	if err := os.WriteFile(path, []byte(second), 0o600); err != nil || signedIn(one) {
		t.Error("its token is gone, and the session is not", err)
	}
	two, err = signIn(s, second, nil)
	if err != nil || !signedIn(two) {
		t.Fatal(err)
	}
	*now = now.Add(access.SessionLength)
	if signedIn(two) {
		t.Error("it never ends")
	}
	if err := os.Remove(path); err != nil || s.Check(with(two)) == nil {
		t.Error("let in without a file", err)
	}
}

// Anybody can send wrong tokens; that must not keep those out who have the right one.
func TestWrongTokensLockNobodyOut(t *testing.T) {
	s, _, _ := sessions(t)
	for range 1000 {
		if _, err := signIn(s, "guess", nil); !errors.Is(err, access.ErrWrong) {
			t.Fatal(err)
		}
	}
	if _, err := signIn(s, first, nil); err != nil {
		t.Errorf("the right token after 1000 wrong ones: %v", err)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	s, now, _ := sessions(t)
	oldest, err := signIn(s, first, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last *http.Cookie
	for range 1000 {
		*now = now.Add(time.Second)
		if last, err = signIn(s, first, nil); err != nil {
			t.Fatal(err)
		}
	}
	if s.Check(with(oldest)) == nil || s.Check(with(last)) != nil {
		t.Error("the wrong one made room")
	}
}
