package main

import "encoding/json"

// dashboard is what is drawn of one.
type dashboard struct {
	Title, Description string
	Panels             []panel
	Templating         struct {
		List []struct{ Name, Label, Type string }
	}
}

type panel struct {
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults  field
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
	Options struct{ GraphMode string }
	Targets []struct {
		Expr, LegendFormat string
		Format             string
	}
	Transformations []struct {
		ID      string
		Options struct {
			ExcludeByName map[string]bool
			RenameByName  map[string]string
			IndexByName   map[string]int
			Sort          []struct {
				Field string
				Desc  bool
			}
		}
	}
}

// field says how values look.
type field struct {
	Unit, NoValue string
	Decimals      *int
	Min, Max      *float64
	Mappings      []mapping
	Thresholds    struct{ Steps []threshold }
	Custom        struct {
		DrawStyle, LineInterpolation string
		FillOpacity                  float64
		Stacking                     struct{ Mode string }
		ThresholdsStyle              struct{ Mode string }
		ScaleDistribution            struct{ Type string }
	}
}

type mapping struct{ Options map[string]look }

// look is the text and colour of a value.
type look struct {
	Text, Color string
	Index       int
}

type threshold struct {
	Value *float64 // nil: from the least on
	Color string
}

// color is that of the last threshold which the value reaches.
func (f field) color(v float64) string {
	name := "text"
	for _, s := range f.Thresholds.Steps {
		if s.Value == nil || v >= *s.Value {
			name = s.Color
		}
	}
	return name
}

// look returns what a mapping says of a value as it is printed.
func (f field) look(v string) (look, bool) {
	for _, m := range f.Mappings {
		if l, ok := m.Options[v]; ok {
			return l, true
		}
	}
	return look{}, false
}

// colors are those that the dashboards name; each is legible on white and on black.
var colors = map[string]string{
	"green": "#56a64b", "yellow": "#e0b400", "red": "#e02f44", "orange": "#ff780a", "blue": "#3274d9", "purple": "#a352cc",
	"transparent": "transparent", "text": "var(--text)",
}

// palette is for series, in their order.
var palette = []string{"#56a64b", "#e0b400", "#3aa6b9", "#ff780a", "#e02f44", "#3274d9", "#a352cc", "#8f6b4e", "#7d8590", "#c2578a"}
