package access

import (
	"errors"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// Demands are what a web configuration asks of every client.
type Demands struct {
	// Passwords: every client needs a password. Certificates: every client needs
	// a certificate that is verified.
	Passwords, Certificates bool
	// TLS: every client speaks https.
	TLS bool
}

// Everybody reports whether every client has to authenticate.
func (d Demands) Everybody() bool { return d.Passwords || d.Certificates }

// ReadDemands reads an exporter-toolkit web configuration; no path, no demands.
func ReadDemands(path string) (Demands, error) {
	if path == "" {
		return Demands{}, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return Demands{}, fmt.Errorf("--web.config.file: %w", err)
	}
	var c struct {
		TLS struct {
			ClientAuth string `yaml:"client_auth_type"`
			CertFile   string `yaml:"cert_file"`
			Cert       string `yaml:"cert"`
		} `yaml:"tls_server_config"`
		Users map[string]string `yaml:"basic_auth_users"`
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return Demands{}, fmt.Errorf("--web.config.file %s: %w", path, err)
	}
	return Demands{Passwords: len(c.Users) > 0, Certificates: c.TLS.ClientAuth == "RequireAndVerifyClientCert", TLS: c.TLS.CertFile != "" || c.TLS.Cert != ""}, nil
}

// WebConfig is the web configuration of a program that runs. The web server reads
// the file anew for each request, so what it asked for at the start need not hold
// any more; Check says so.
type WebConfig struct {
	path  string
	begun Demands
}

// OpenWebConfig reads the file; "" asks nothing of anybody.
func OpenWebConfig(path string) (*WebConfig, error) {
	d, err := ReadDemands(path)
	return &WebConfig{path, d}, err
}

// Demands are those of the start; none for nil.
func (c *WebConfig) Demands() Demands {
	if c == nil {
		return Demands{}
	}
	return c.begun
}

// ErrOpened means that the web configuration made every client authenticate when
// the program began, and does not any more.
var ErrOpened = errors.New("closed: --web.config.file made every client authenticate when this program began, and does not any more; put the users or client_auth_type back, or restart it to run without")

// Check returns ErrOpened, or why the file cannot be read, while clients that had
// to authenticate at the start do not have to.
func (c *WebConfig) Check() error {
	if !c.Demands().Everybody() {
		return nil
	}
	now, err := ReadDemands(c.path)
	if err != nil {
		return err
	}
	if c.begun.Passwords && !now.Passwords || c.begun.Certificates && !now.Certificates {
		return ErrOpened
	}
	return nil
}
