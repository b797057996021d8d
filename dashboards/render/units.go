package main

import (
	"math"
	"strconv"
	"strings"
)

// show prints a value as Grafana does for the units that the dashboards use.
func show(f field, v float64) string {
	if l, ok := f.look(number(v, 6)); ok {
		return l.Text
	}
	if math.IsInf(v, 1) {
		return "∞"
	}
	decimals := 2
	if f.Decimals != nil {
		decimals = *f.Decimals
	}
	scaled := func(base float64, names ...string) string {
		i, x := 0, v
		for math.Abs(x) >= base && i < len(names)-1 {
			i, x = i+1, x/base
		}
		return strings.TrimSpace(number(x, min(decimals, digits(x))) + " " + names[i])
	}
	switch f.Unit {
	case "percentunit":
		return number(v*100, min(decimals, digits(v*100))) + "%"
	case "bytes":
		return scaled(1024, "B", "KiB", "MiB", "GiB", "TiB")
	case "Bps":
		return scaled(1000, "B/s", "kB/s", "MB/s", "GB/s")
	case "hertz":
		return scaled(1000, "Hz", "kHz", "MHz", "GHz")
	case "watt":
		return scaled(1000, "W", "kW", "MW")
	case "joule":
		return scaled(1000, "J", "kJ", "MJ", "GJ")
	case "celsius":
		return number(v, 1) + " °C"
	case "bool_yes_no":
		return map[bool]string{true: "Yes", false: "No"}[v != 0]
	case "s":
		return duration(v, decimals)
	}
	return scaled(1000, "", "K", "Mil")
}

func duration(v float64, decimals int) string {
	for _, u := range []struct {
		from, by float64
		name     string
	}{{86400, 86400, "days"}, {3600, 3600, "hours"}, {60, 60, "mins"}, {1, 1, "s"}, {1e-3, 1e-3, "ms"}, {1e-6, 1e-6, "µs"}, {0, 1e-9, "ns"}} {
		if math.Abs(v) >= u.from && (v != 0 || u.from == 1) || v == 0 && u.name == "s" {
			return number(v/u.by, min(decimals, digits(v/u.by))) + " " + u.name
		}
	}
	return "0 s"
}

// digits are how many a number of this size needs behind the point.
func digits(v float64) int {
	switch v = math.Abs(v); {
	case v >= 100:
		return 0
	case v >= 10:
		return 1
	default:
		return 2
	}
}

func number(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}
