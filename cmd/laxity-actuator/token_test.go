package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTokenIsMadeOnceWithItsWebConfig(t *testing.T) {
	dir := t.TempDir()
	file, web := filepath.Join(dir, "new", "password"), filepath.Join(dir, "web", "web.yml")
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	token := func(want int, more ...string) (password, config string) {
		t.Helper()
		if code := command(append([]string{"token", file, "--mode=0444", "--web-config=" + web}, more...)); code != want {
			t.Fatalf("token %v: status %d", more, code)
		}
		return read(file), read(web)
	}
	password, config := token(0)
	if !admits([]byte(config), []byte(password[:len(password)-1])) || admits([]byte(config), []byte(password[1:])) {
		t.Errorf("for the token %s it wrote\n%s", password, config)
	}
	for _, path := range []string{file, web} {
		if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o444 {
			t.Errorf("%s: %v %v", path, i.Mode(), err)
		}
	}
	if p, c := token(0); p != password || c != config {
		t.Error("it did not stay")
	}
	// It was killed in between.
	if err := os.Remove(web); err != nil {
		t.Fatal(err)
	}
	p, c := token(0)
	if p != password || !admits([]byte(c), []byte(p[:len(p)-1])) {
		t.Error("the web configuration was not made for the token that is there")
	}
	if p, c := token(0, "--replace"); p == password || !admits([]byte(c), []byte(p[:len(p)-1])) {
		t.Error("not replaced together")
	}
	// Somebody's own is not overwritten.
	if err := os.Remove(web); err != nil {
		t.Fatal(err)
	}
	own := "basic_auth_users: {admin: x}\n"
	if err := os.WriteFile(web, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, c := token(1); c != own {
		t.Errorf("it overwrote what a person wrote:\n%s", c)
	}
}
