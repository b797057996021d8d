// Package chain tests the chain as users run it: a real Prometheus and a real
// Alertmanager with the configuration of compose/, the exporter on a simulated
// GPU, the actuator, and real containers. It holds tests, and the helpers that
// start the programs.
package chain
