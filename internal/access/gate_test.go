package access_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/access"
)

// asked is one request: by default one of a program on this machine.
type asked struct {
	remote, host string
	headers      map[string]string
}

func (a asked) request(method string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost:9871/x", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	if a.remote != "" {
		r.RemoteAddr = a.remote
	}
	if a.host != "" {
		r.Host = a.host
	}
	for k, v := range a.headers {
		r.Header.Set(k, v)
	}
	return r
}

var done = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func code(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func headers(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func TestWhoMayActAndRead(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	passwords, err := access.OpenWebConfig(write(t, "basic_auth_users: {alice: secret}"))
	if err != nil {
		t.Fatal(err)
	}
	nobody, token, web := access.Options{}, access.Options{Tokens: tokens}, access.Options{Web: passwords}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const ok = http.StatusNoContent
	for what, c := range map[string]struct {
		o            access.Options
		asks         asked
		change, read int
	}{
		"local":                  {nobody, asked{}, ok, ok},
		"local, unix socket":     {nobody, asked{remote: "@"}, ok, ok},
		"local, IPv6":            {nobody, asked{remote: "[::1]:5", host: "[::1]:9871"}, ok, ok},
		"local, host name":       {nobody, asked{host: name + ":9871"}, ok, ok},
		"local, address":         {nobody, asked{host: "192.0.2.7:9871"}, ok, ok},
		"local, of localhost":    {nobody, asked{host: "gpu.localhost."}, ok, ok},
		"rebound name":           {nobody, asked{host: "evil.example:9871"}, 421, 421},
		"rebound name, token":    {token, asked{host: "evil.example:9871"}, 421, 421},
		"any name, with token":   {token, asked{host: "gpu-1.example:9871", headers: headers("Authorization", "Bearer "+first)}, ok, ok},
		"known name":             {access.Options{Hosts: []string{"GPU-1.example"}}, asked{host: "gpu-1.example:9871"}, ok, ok},
		"remote":                 {nobody, asked{remote: "192.0.2.1:5", host: "gpu-1:9870"}, 403, ok},
		"proxy, X-Forwarded-For": {nobody, asked{headers: headers("X-Forwarded-For", "192.0.2.1")}, 403, ok},
		"proxy, Forwarded":       {nobody, asked{headers: headers("Forwarded", "for=192.0.2.1")}, 403, ok},
		"proxy, X-Real-IP":       {nobody, asked{headers: headers("X-Real-IP", "192.0.2.1")}, 403, ok},
		"proxy, Via":             {nobody, asked{headers: headers("Via", "1.1 proxy")}, 403, ok},
		"proxy, host alone":      {nobody, asked{headers: headers("X-Forwarded-Host", "gpu-1")}, 403, ok},
		"another site":           {nobody, asked{headers: headers("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")}, 403, ok},
		"another port":           {nobody, asked{headers: headers("Origin", "http://localhost:80", "Sec-Fetch-Site", "same-site")}, 403, ok},
		"sandboxed frame":        {nobody, asked{headers: headers("Origin", "null", "Sec-Fetch-Site", "cross-site")}, 403, ok},
		"old browser":            {nobody, asked{headers: headers("Origin", "http://localhost:9871")}, ok, ok},
		"old browser, elsewhere": {nobody, asked{headers: headers("Origin", "https://evil.example")}, 403, ok},
		"old browser, port":      {nobody, asked{headers: headers("Origin", "http://localhost:80")}, 403, ok},
		"old browser, frame":     {nobody, asked{headers: headers("Origin", "null")}, 403, ok},
		"own page":               {nobody, asked{headers: headers("Origin", "http://localhost:9871", "Sec-Fetch-Site", "same-origin")}, ok, ok},
		"local without token":    {token, asked{}, 401, ok},
		"local with token":       {token, asked{headers: headers("Authorization", "Bearer "+first)}, ok, ok},
		"token as password":      {token, asked{headers: headers("Authorization", basic("laxity", first))}, ok, ok},
		"remote with token":      {token, asked{remote: "192.0.2.1:5", host: "gpu-1:9871", headers: headers("Authorization", "Bearer "+first)}, ok, ok},
		"token, another site":    {token, asked{headers: headers("Authorization", basic("x", first), "Sec-Fetch-Site", "cross-site")}, 403, ok},
		"token, other port":      {token, asked{headers: headers("Authorization", basic("x", first), "Origin", "http://localhost:80", "Sec-Fetch-Site", "same-site")}, 403, ok},
		"web server asked":       {web, asked{remote: "192.0.2.1:5", host: "gpu-1:9871"}, ok, ok},
	} {
		g := access.New(c.o)
		if got := code(g.All(g.Change(done)), c.asks.request(http.MethodPost)); got != c.change {
			t.Errorf("%s: change %d, want %d", what, got, c.change)
		}
		if got := code(g.All(done), c.asks.request(http.MethodGet)); got != c.read {
			t.Errorf("%s: read %d, want %d", what, got, c.read)
		}
	}
}

func TestGuardClosesWithItsWebConfig(t *testing.T) {
	path := write(t, "basic_auth_users: {alice: secret}")
	web, err := access.OpenWebConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	g := access.New(access.Options{Web: web})
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, remote := range []string{"127.0.0.1:5", "192.0.2.1:5"} {
		r := asked{remote: remote}.request(http.MethodPost)
		if got := code(g.All(g.Change(done)), r); got != http.StatusServiceUnavailable {
			t.Errorf("%s changed something: %d", remote, got)
		}
		if got := code(g.All(done), r); got != http.StatusServiceUnavailable {
			t.Errorf("%s read something: %d", remote, got)
		}
		if g.Check(r) == nil || g.Authenticated(r) {
			t.Errorf("%s may act", remote)
		}
	}
}

// Who asks too often is refused, and keeps nobody else out.
func TestGuardBoundsRequestsASecond(t *testing.T) {
	now := time.Now()
	g := access.New(access.Options{Now: func() time.Time { return now }})
	count := func(h http.Handler, remote string, n int) (passed int, refused int) {
		for range n {
			if c := code(h, asked{remote: remote}.request(http.MethodPost)); c == http.StatusNoContent {
				passed++
			} else {
				refused = c
			}
		}
		return passed, refused
	}
	if n, c := count(g.All(done), "192.0.2.1:5", 10_000); n != 2000 || c != http.StatusTooManyRequests {
		t.Errorf("%d reads passed at once, then %d", n, c)
	}
	if n, _ := count(g.All(done), "192.0.2.1:6", 1); n != 0 {
		t.Error("another port is another client")
	}
	if n, _ := count(g.All(done), "192.0.2.2:5", 1); n != 1 {
		t.Error("another client is refused")
	}
	if n, c := count(g.Change(done), "127.0.0.1:5", 5000); n != 1000 || c != http.StatusServiceUnavailable {
		t.Errorf("%d changes passed at once, then %d", n, c)
	}
	now = now.Add(time.Second)
	if n, _ := count(g.Change(done), "127.0.0.1:5", 5000); n != 100 {
		t.Errorf("%d changes passed a second later", n)
	}
	if n, _ := count(g.May(done), "127.0.0.1:5", 5000); n != 5000 {
		t.Errorf("%d of 5000 passed a gate that bounds nobody who may act", n)
	}
	if n, c := count(g.May(done), "192.0.2.1:5", 1); n != 0 || c != http.StatusForbidden {
		t.Errorf("a stranger: %d passed, %d", n, c)
	}
}

// Nobody without a token takes from the rate of those who have one.
func TestStrangersTakeNothingFromTheRate(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	g := access.New(access.Options{Tokens: tokens, Now: func() time.Time { return now }})
	for range 5000 {
		if c := code(g.All(g.Change(done)), asked{headers: headers("Authorization", "Bearer wrong")}.request(http.MethodPost)); c != http.StatusUnauthorized && c != http.StatusTooManyRequests {
			t.Fatal(c)
		}
	}
	if c := code(g.All(g.Change(done)), asked{headers: headers("Authorization", "Bearer "+first)}.request(http.MethodPost)); c != http.StatusNoContent {
		t.Errorf("the right token after 5000 wrong requests: %d", c)
	}
}

// Anybody can send wrong tokens; that must not keep those out who have the right one.
func TestWrongTokensLockNobodyOut(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	g := access.New(access.Options{Tokens: tokens})
	h := g.All(g.Change(done))
	for _, wrong := range []string{"Bearer guess", basic("laxity", "guess")} {
		for range 1000 {
			if c := code(h, asked{headers: headers("Authorization", wrong)}.request(http.MethodPost)); c != http.StatusUnauthorized {
				t.Fatalf("%s: %d", wrong, c)
			}
		}
	}
	for _, right := range []string{"Bearer " + first, basic("laxity", first)} {
		if c := code(h, asked{headers: headers("Authorization", right)}.request(http.MethodPost)); c != http.StatusNoContent {
			t.Errorf("the right token after 2000 wrong ones: %d", c)
		}
	}
}

// A browser asks its user for what is missing, and tells it to nobody but us.
func TestBrowserIsAskedForThePassword(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	access.New(access.Options{Tokens: tokens}).Change(done).ServeHTTP(w, asked{}.request(http.MethodGet))
	if got := strings.Join(w.Header().Values("WWW-Authenticate"), "; "); w.Code != http.StatusUnauthorized || !strings.Contains(got, `Basic realm="laxity"`) {
		t.Errorf("%d, asks for %s", w.Code, got)
	}
}

// What is put on record about who asks is no more than what was checked.
func TestWho(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	passwords, err := access.OpenWebConfig(write(t, "basic_auth_users: {alice: secret}"))
	if err != nil {
		t.Fatal(err)
	}
	alice := headers("Authorization", basic("alice", first))
	for _, c := range []struct {
		o    access.Options
		asks asked
		want string
	}{
		{access.Options{}, asked{}, "local user"},
		{access.Options{}, asked{headers: alice}, "local user"},
		{access.Options{Tokens: tokens}, asked{headers: alice}, "token holder"},
		{access.Options{Web: passwords}, asked{headers: alice}, "alice"},
		{access.Options{Web: passwords}, asked{}, "authenticated user"},
	} {
		if got := access.New(c.o).Who(c.asks.request(http.MethodPost)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Those who watch never end by themselves: strangers among them leave room for others.
func TestStrangersWhoWatchAreBounded(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g := access.New(access.Options{Tokens: tokens})
	h := g.Streams(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			begun <- struct{}{}
			<-end
		}
	}))
	page := g.Stream(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	watch := func(authorization string) int {
		r := httptest.NewRequest(http.MethodGet, "/x?watch=1", nil)
		r.Header.Set("Authorization", authorization)
		return code(h, r)
	}
	for range 128 {
		go func() { watch(""); ended <- struct{}{} }()
		<-begun
	}
	if got := watch(""); got != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", got)
	}
	if got := code(h, httptest.NewRequest(http.MethodGet, "/x", nil)); got != http.StatusOK {
		t.Errorf("who does not watch: %d", got)
	}
	events := httptest.NewRequest(http.MethodGet, "/events", nil)
	if got := code(page, events); got != http.StatusServiceUnavailable {
		t.Errorf("one more, of the page: %d", got)
	}
	events.Header.Set("Authorization", "Bearer "+first)
	if got := code(page, events); got != http.StatusOK {
		t.Errorf("the page of who has the token: %d", got)
	}
	go func() { watch("Bearer " + first); ended <- struct{}{} }()
	<-begun // who has the token watches all the same
	close(end)
	for range 129 {
		<-ended
	}
	go func() { watch(""); ended <- struct{}{} }()
	<-begun
	<-ended
}

// Answers that take long are made for one stranger at a time; who has the token does not wait for them.
func TestStrangersQueue(t *testing.T) {
	tokens, err := access.OpenTokens(write(t, first))
	if err != nil {
		t.Fatal(err)
	}
	begun, end := make(chan string), make(chan struct{})
	h := access.New(access.Options{Tokens: tokens}).Queue(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- r.URL.Path
		<-end
	}))
	answered := make(chan int)
	ask := func(path, authorization string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", authorization)
		answered <- code(h, r)
	}
	go ask("/stranger", "")
	<-begun
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/impatient", nil))
		answered <- 0
	}()
	go ask("/owner", "Bearer "+first)
	if path := <-begun; path != "/owner" {
		t.Errorf("%s did not wait for the first stranger", path)
	}
	leave()
	if got := <-answered; got != 0 {
		t.Errorf("who does not wait any more: %d", got)
	}
	go ask("/next", "")
	close(end)
	if path := <-begun; path != "/next" {
		t.Errorf("%s comes next", path)
	}
	for range 3 {
		if got := <-answered; got != http.StatusOK {
			t.Errorf("answered %d", got)
		}
	}
}
