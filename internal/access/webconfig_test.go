package access_test

import (
	"errors"
	"os"
	"testing"

	"github.com/laxity/laxity/internal/access"
)

func TestReadDemands(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                  false,
		"basic_auth_users: {}":              false,
		"basic_auth_users: {alice: secret}": true,
		"tls_server_config: {cert_file: c, key_file: k}":                      false,
		"tls_server_config: {client_auth_type: RequestClientCert}":            false,
		"tls_server_config: {client_auth_type: RequireAndVerifyClientCert}":   true,
		"tls_server_config: {client_auth_type: VerifyClientCertIfGiven}":      false,
		"tls_server_config: {cert_file: c}\nbasic_auth_users: {bob: '$2y$x'}": true,
	} {
		if got, err := access.ReadDemands(write(t, text)); got.Everybody() != want || err != nil {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	if _, err := access.ReadDemands(write(t, "a: [")); err == nil {
		t.Error("bad YAML was taken")
	}
}

// A page is told with the scheme that its server speaks: TLS as soon as there is a certificate.
func TestDemandsTLS(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "basic_auth_users: {alice: secret}": false,
		"tls_server_config: {cert_file: c, key_file: k}": true, "tls_server_config: {cert: c, key: k}": true,
	} {
		if got, err := access.ReadDemands(write(t, text)); got.TLS != want || err != nil {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

// The web server reads its configuration for each request: who takes the users out
// of it must not open a program that was started closed.
func TestWebConfigThatLosesItsUsersIsClosed(t *testing.T) {
	const users, certificates = "basic_auth_users: {alice: secret}", "tls_server_config: {client_auth_type: RequireAndVerifyClientCert}"
	for _, c := range []struct {
		begins, becomes string
		closed          bool
	}{
		{users, "", true},
		{users, "basic_auth_users: {}", true},
		{users, certificates, true},
		{users, "a: [", true},
		{users, "basic_auth_users: {bob: other}", false},
		{certificates, "", true},
		{certificates, "tls_server_config: {client_auth_type: RequestClientCert}", true},
		{users + "\n" + certificates, users, true},
		{"", "", false},
		{"", users, false},
	} {
		path := write(t, c.begins)
		web, err := access.OpenWebConfig(path)
		if err != nil || web.Check() != nil {
			t.Fatal(c.begins, err, web.Check())
		}
		if err := os.WriteFile(path, []byte(c.becomes), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := web.Check(); (err != nil) != c.closed {
			t.Errorf("%q became %q: %v", c.begins, c.becomes, err)
		}
		if err := os.WriteFile(path, []byte(c.begins), 0o600); err != nil || web.Check() != nil {
			t.Errorf("%q is back and it is not open: %v", c.begins, err)
		}
	}
	path := write(t, users)
	web, err := access.OpenWebConfig(path)
	if err != nil || os.Remove(path) != nil || web.Check() == nil || errors.Is(web.Check(), access.ErrOpened) {
		t.Errorf("the file is gone: %v, %v", err, web.Check())
	}
}
