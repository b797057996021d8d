package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/common/config"
)

// httpConfigEnv names the file where no flag does. laxity run has no such flag.
const httpConfigEnv = "LAXITY_HTTP_CONFIG"

const httpConfigHelp = "File with credentials and TLS settings for exporter and actuator: an http_config of Prometheus (authorization, basic_auth, tls_config)."

// httpClient reads an http_config file. Without one it sends a token. Its clients
// have no overall timeout, because streams go on.
func httpClient(file, token string) (*http.Client, error) {
	if file == "" {
		return &http.Client{Transport: withToken{token, http.DefaultTransport}}, nil
	}
	c, _, err := config.LoadHTTPConfigFile(file)
	if err != nil {
		return nil, fmt.Errorf("http_config %s (write, for example, authorization: {credentials_file: token}): %w", file, err)
	}
	client, err := config.NewClientFromConfig(*c, "laxity")
	if err != nil {
		return nil, fmt.Errorf("http_config %s: %w", file, err)
	}
	return client, nil
}

// client is that of the flags --http.config.file and --token.file, which every command has.
func (c *cli) client() (*http.Client, error) { return httpClient(c.httpConfig, c.tokenFile) }

// clientFromEnv is for commands whose flags are not parsed here.
func clientFromEnv() (*http.Client, error) {
	return httpClient(os.Getenv(httpConfigEnv), defaultTokenFile())
}

// errDenied says what to do after an answer of 401.
var errDenied = errors.New("for laxity up be the user who started it (sudo?), or name its token with --token.file; for a package sudo, with --token.file=/etc/laxity/webhook-token; otherwise write --http.config.file with authorization: {credentials_file: …} or basic_auth (laxity run: " + tokenEnv + ", " + httpConfigEnv + ")")

// denied adds what to do to the error of an answer, of which it keeps what is wrong: the rest says
// how other clients send a token.
func denied(code int, err error) error {
	if code == http.StatusUnauthorized {
		wrong, _, _ := strings.Cut(cmp.Or(err, errors.New("authentication is needed")).Error(), ": ")
		return fmt.Errorf("%s: %w", wrong, errDenied)
	}
	return err
}
