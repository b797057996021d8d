package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/common/config"

	"github.com/laxity/laxity/actuator/source"
)

// httpConfigEnv names the file where no flag does. laxity run has no such flag.
const httpConfigEnv = "LAXITY_HTTP_CONFIG"

const httpConfigHelp = "File with credentials and TLS settings for exporter and actuator: an http_config of Prometheus (authorization, basic_auth, tls_config)."

// httpClient reads an http_config file. It sends the token unless that file says how to
// authenticate. Its clients have no overall timeout, because streams go on.
func httpClient(file string, token tokenSource) (*http.Client, error) {
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
	if c.Authorization == nil && c.BasicAuth == nil && c.OAuth2 == nil {
		client.Transport = withToken{token, client.Transport}
	}
	return client, nil
}

// client is that of the flags --http.config.file and --token.file, which every command has.
func (c *cli) client() (*http.Client, error) { return tokenClient(c.httpConfig, c.tokenFile) }

// clientFromEnv is for commands whose flags are not parsed here; tokenFile is empty where none was
// named.
func clientFromEnv(tokenFile string) (*http.Client, error) {
	return tokenClient(os.Getenv(httpConfigEnv), cmp.Or(tokenFile, os.Getenv(tokenEnv)))
}

func tokenClient(file, tokenFile string) (*http.Client, error) {
	token, err := tokenFrom(tokenFile, defaultTokenFiles())
	if err != nil {
		return nil, err
	}
	return httpClient(file, token)
}

// unread adds what to do to the error of a command that an exporter did not let read.
func unread(err error) error {
	if refused, ok := errors.AsType[*source.RefusedError](err); ok {
		return denied(refused.Code, err)
	}
	return err
}

// denied adds what to do to the error of an answer, of which it keeps what is wrong: the rest says
// how other clients send a token.
func denied(code int, err error) error {
	if code == http.StatusUnauthorized {
		wrong, _, _ := strings.Cut(cmp.Or(err, errors.New("authentication is needed")).Error(), ": ")
		return fmt.Errorf("%s: the token is read from --token.file or %s, else from %s: be the user who may read it (sudo?). "+
			"These go to their owner's programs at 127.0.0.1 alone: for another address name the file (--token.file); "+
			"or write --http.config.file (%s) with authorization: {credentials_file: …} or basic_auth",
			wrong, tokenEnv, strings.Join(defaultTokenFiles(), " or "), httpConfigEnv)
	}
	return err
}
