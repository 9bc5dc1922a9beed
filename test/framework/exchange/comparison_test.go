package exchange

import "testing"

// A list's own version is the moment's, whatever the list's kind is called and wherever the version
// stands; its objects' versions are not (N-1).
func TestListVersions(t *testing.T) {
	const target = "/apis/odd.example.com/v1/oddities?resourceVersion=5"
	object := func(version string) string {
		return `{"apiVersion":"odd.example.com/v1","kind":"Oddity","metadata":{"name":"a","resourceVersion":"` + version +
			`"}}`
	}
	sorted := func(kind, own, version string) string {
		return `{"apiVersion":"odd.example.com/v1","items":[` + object(version) + `],"kind":"` + kind +
			`","metadata":{"continue":"","resourceVersion":"` + own + `"}}`
	}
	headed := func(kind, items, own, version string) string {
		return `{"kind":"` + kind + `","apiVersion":"v1","metadata":{"resourceVersion":"` + own + `"},"` + items + `":[` +
			object(version) + `]}`
	}
	inYAML := func(own, version string) string {
		return "apiVersion: odd.example.com/v1\nitems:\n- kind: Oddity\n  metadata:\n    resourceVersion: \"" + version +
			"\"\nkind: Oddities\nmetadata:\n  resourceVersion: \"" + own + "\"\n"
	}
	for _, c := range []struct {
		name            string
		direct, proxied string
		equal           bool
	}{
		{"sorted keys", sorted("OddityList", "7", "6"), sorted("OddityList", "9", "6"), true},
		{"a kind of another name", sorted("Oddities", "7", "6"), sorted("Oddities", "9", "6"), true},
		{"the kind first", headed("PodList", "items", "7", "6"), headed("PodList", "items", "9", "6"), true},
		{"a table", headed("Table", "rows", "7", "6"), headed("Table", "rows", "9", "6"), true},
		{"YAML", inYAML("7", "6"), inYAML("9", "6"), true},
		{"an object in a list", sorted("Oddities", "7", "6"), sorted("Oddities", "9", "7"), false},
		{"an object in a list, the kind first", headed("PodList", "items", "7", "6"), headed("PodList", "items", "9", "7"),
			false},
		{"an object in a list in YAML", inYAML("7", "6"), inYAML("9", "7"), false},
		{"before what was requested", sorted("Oddities", "7", "6"), sorted("Oddities", "4", "6"), false},
		{"an object", object("7"), object("9"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			result := Compare(NewTally(), Request{Target: target}, answerIn("application/json", []byte(c.direct)),
				answerIn("application/json", []byte(c.proxied)))
			if equal := len(result.Problems) == 0; equal != c.equal {
				t.Errorf("equal: %t, problems %q", equal, result.Problems)
			}
		})
	}
}

// Which version a list is at is said by a request that names one; "00" is a number, and names none
// (N-1, W-27).
func TestExactVersions(t *testing.T) {
	const path = "/api/v1/namespaces/a/configmaps?"
	for _, c := range []struct {
		query string
		exact bool
	}{
		{"resourceVersion=5&resourceVersionMatch=Exact", true},
		{"resourceVersion=5&limit=1", true},
		{"resourceVersion=05&limit=1", true},
		{"continue=" + EncodeToken(5, "a/b\x00"), true},
		{"", false},
		{"resourceVersion=5", false},
		{"resourceVersion=0&limit=1", false},
		{"resourceVersion=00&limit=1", false},
		{"resourceVersion=00&resourceVersionMatch=Exact", false},
		{"resourceVersion=5&limit=1&fieldSelector=metadata.name%3Da", false},
		{"continue=" + EncodeToken(-1, "a/b\x00"), false},
	} {
		t.Run(c.query, func(t *testing.T) {
			list := func(version string) *Answer {
				return answerIn("application/json",
					[]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"`+version+`"},"items":[]}`))
			}
			result := Compare(NewTally(), Request{Target: path + c.query}, list("7"), list("9"))
			if differ := len(result.Problems) > 0; differ != c.exact {
				t.Errorf("told apart: %t, want %t: %q", differ, c.exact, result.Problems)
			}
		})
	}
}
