// Package rules holds Laxity's recording and alerting rules, so that a program
// can carry them: the embedded engine of `laxity up` evaluates the very files
// that a Prometheus server loads.
//
// It imports the standard library only.
package rules

import "embed"

// FS holds recording.yml and alerts.yml.
//
//go:embed recording.yml alerts.yml
var FS embed.FS
