package inject

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	k8syaml "sigs.k8s.io/yaml"
)

// block is a Pod in YAML's own form, with lines in front of its spec, in its metadata's
// indentation.
func block(lines string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: app\n" + lines +
		"spec:\n  containers:\n  - name: app\n    image: app\n"
}

// jsonPod is a Pod as Python's json writes it.
const jsonPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, ` +
	`"spec": {"containers": [{"name": "app", "image": "app"}]}}`

// toJSON is a document as kubectl reads it.
func toJSON(text string) ([]byte, error) {
	if start := contentOf(text); strings.HasPrefix(text[start:], "{") && json.Valid([]byte(text[start:])) {
		return []byte(text[start:]), nil
	}
	return k8syaml.YAMLToJSON([]byte(text))
}

// means checks what injecting a stream means: every document that kubectl reads says what it said,
// with the patch that Plan makes of it; taken out again it says what it said; and documents without
// pods are as they were, byte for byte. It returns what became of it.
func means(t *testing.T, text string) (out string, done []ObjectResult, err error) {
	t.Helper()
	out, done, err = Manifest(text, options())
	if err != nil {
		if out != "" || strings.Contains(err.Error(), "BUG") {
			t.Errorf("%q: %q, %v", text, out, err)
		}
		return out, done, err
	}
	back, _, err := Remove(out)
	if err != nil {
		t.Fatalf("%q becomes %q, which cannot be taken back: %v", text, out, err)
	}
	before, after, last := documents(text), documents(out), documents(back)
	if len(before) != len(after) || len(before) != len(last) {
		t.Fatalf("%q: %d documents become %d and then %d: %q, %q", text, len(before), len(after), len(last), out, back)
	}
	for i := range before {
		// nothing is said of it; keys such as 0 and 0.0 are one to kubectl, now of the one value,
		// now of the other
		if before[i] == after[i] && len(done) == 0 {
			continue
		}
		want, err := toJSON(before[i])
		if err != nil {
			if before[i] != after[i] {
				t.Errorf("%q, which is unreadable, becomes %q", before[i], after[i])
			}
			continue
		}
		object, err := decode(want)
		if err != nil {
			t.Fatal(err)
		}
		all := workloadsIn(object, "")
		if len(all) == 0 && (before[i] != after[i] || before[i] != last[i]) {
			t.Errorf("%q, which has no pods, becomes %q and then %q", before[i], after[i], last[i])
		}
		var patch Patch
		for _, w := range all {
			pod, err := w.read()
			if err != nil {
				t.Fatalf("%q: %v", before[i], err)
			}
			if of, _, err := Plan(Pod{Template: pod}, options()); err == nil {
				patch = append(patch, of.at(w.pointer)...)
			}
		}
		sameAs(t, last[i], want)
		if len(patch) > 0 {
			if want, err = applied(want, patch); err != nil {
				t.Fatal(err)
			}
		}
		sameAs(t, after[i], want)
	}
	return out, done, nil
}

// documents are the texts of those of a stream.
func documents(text string) (all []string) {
	for _, part := range split(text) {
		of, err := parse(part)
		if err != nil {
			all = append(all, part)
		}
		for _, d := range of {
			all = append(all, d.text)
		}
	}
	return all
}

// sameAs checks that a document says what JSON says, but for what is empty.
func sameAs(t *testing.T, text string, want []byte) {
	t.Helper()
	got, err := toJSON(text)
	if err != nil {
		t.Fatalf("%q is unreadable: %v", text, err)
	}
	one, err := decode(got)
	if err != nil {
		t.Fatal(err)
	}
	other, err := decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(tidy(one), tidy(other)) {
		t.Fatalf("%q says\n%s\nand not\n%s", text, got, want)
	}
}

// tidy is a tree without what is empty, which cannot be distinguished from what was empty before.
func tidy(tree any) any {
	switch node := tree.(type) {
	case map[string]any:
		for key, value := range node {
			if value = tidy(value); isEmpty(value) {
				delete(node, key)
			} else {
				node[key] = value
			}
		}
	case []any:
		for i := range node {
			node[i] = tidy(node[i])
		}
	}
	return tree
}

func isEmpty(tree any) bool {
	switch node := tree.(type) {
	case map[string]any:
		return len(node) == 0
	case []any:
		return len(node) == 0
	}
	return tree == nil
}

// TestHostileYAML: what kubectl sees is what is injected, however it is written; and what cannot be
// is refused.
func TestHostileYAML(t *testing.T) {
	const refused = "refused"
	base := "apiVersion: v1\nmetadata: {name: app}\nspec: {containers: [{name: app, image: app}]}\n"
	for name, c := range map[string]struct{ text, want string }{
		"kind by alias":              {"x: &p Pod\nkind: *p\n" + base, "pod/app"},
		"kind by merge":              {"x: &p {kind: Pod}\n<<: *p\n" + base, "pod/app"},
		"kind in base64":             {"kind: !!binary UG9k\n" + base, "pod/app"},
		"key in base64":              {"!!binary a2luZA==: Pod\n" + base, "pod/app"},
		"quoted key":                 {"\"kind\": Pod\n" + base, "pod/app"},
		"escaped key":                {"\"\\x6bind\": Pod\n" + base, "pod/app"},
		"kind twice, last is a pod":  {"kind: ConfigMap\nkind: Pod\n" + base, "pod/app"},
		"kind twice, first is a pod": {"kind: Pod\nkind: ConfigMap\n" + base, ""},
		"custom tag":                 {block("  annotations: {a: !mine b}\n"), "pod/app"},
		"tag of a language":          {block("  annotations: {a: !!python/object:os.system b}\n"), "pod/app"},
		"merged container": {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: app\nx: &c\n  name: app\n  env:\n  - " +
			"name: A\n    value: b\nspec:\n  containers:\n  - <<: *c\n    image: app\n", "pod/app"},
		"one list twice": {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: app\nspec:\n  containers:\n  - name: " +
			"a\n    env: &e\n    - name: A\n      value: b\n  - name: b\n    env: *e\n", "pod/app"},
		"containers twice": {block("") + "  containers:\n  - name: other\n", "pod/app"},
		"spec twice":       {block("") + "spec:\n  containers:\n  - name: other\n", "pod/app"},
		"YAML 1.1 words": {block("  labels:\n    yes: \"no\"\n    0777: a\n    1:30: b\n    ~: c\n    1.5: d\n") +
			"x: [on, off, y, 0o17, 0b1, 1_000, .inf, 12:30:45, 2001-01-01]\n", refused},
		"YAML 1.1 values": {block("") + "  x: [on, off, y, 0o17, 0777, 0b1, 1_000, 12:30:45, 2001-01-01]\n",
			"pod/app"},
		"marker in block scalar":     {block("  annotations:\n    a: |\n      ---\n      text\n"), "pod/app"},
		"marker at the margin":       {block("  annotations:\n    a: |\n---\n  text\n"), refused},
		"anchor of another document": {"x: &p Pod\n---\nkind: *p\n" + base, refused},
		"a stream of JSON": {`{"kind": "ConfigMap"}` + "\n" + jsonPod + "\n" + jsonPod + "\n",
			"pod/app pod/app"},
		"JSON without anything between": {jsonPod + jsonPod, "pod/app pod/app"},
		"JSON behind markers": {"---\n" + jsonPod + "\n--- " + jsonPod + "\n---\n" + block(""),
			"pod/app pod/app pod/app"},
		"JSON behind a byte order mark":  {"\ufeff" + jsonPod, "pod/app"},
		"JSON with an emoji in escapes":  {strings.Replace(jsonPod, `"image"`, `"e": "\ud83d\ude00", "image"`, 1), "pod/app"},
		"JSON with half of a surrogate":  {strings.Replace(jsonPod, `"image"`, `"e": "\ud83d", "image"`, 1), "pod/app"},
		"JSON with a slash in an escape": {strings.Replace(jsonPod, `"image"`, `"e": "\/", "image"`, 1), "pod/app"},
		"JSON with numbers": {strings.Replace(jsonPod, `"image"`,
			`"n": [12345678901234567890123, 1e400, 1.10, -0, 0.1e-7], "image"`, 1), "pod/app"},
		"JSON in a List": {`{"kind": "List", "apiVersion": "v1", "items": [` + jsonPod + `, {"kind": "PodList", ` +
			`"apiVersion": "v1", "items": [` + jsonPod + `]}]}`, "pod/app pod/app"},
		"JSON with one key twice": {strings.Replace(jsonPod, `{"apiVersion"`, `{"kind": "ConfigMap", "apiVersion"`, 1),
			"pod/app"},
		"JSON with a comment, which is YAML": {jsonPod + "\n# the end\n", "pod/app"},
		"JSON that is cut off":               {jsonPod[:len(jsonPod)-2], refused},
		"JSON of other kinds":                {`{"kind": "ConfigMap", "data": {"a": "\ud83d\ude00"}}`, ""},
		"JSON": {`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, ` +
			`"spec": {"containers": [{"name": "a\u00e9"}]}}`, "pod/app"},
		"a tab":               {block("\tlabels: {}\n"), refused},
		"NUL":                 {block("  annotations: {a: \"b\x00\"}\n"), refused},
		"bell":                {block("  annotations: {a: \"b\x07\"}\n"), refused},
		"byte order mark":     {"\ufeff" + block(""), "pod/app"},
		"UTF-16":              {"\xff\xfea\x00", refused},
		"a carriage return":   {strings.ReplaceAll(block(""), "\n", "\r"), "pod/app"},
		"mixed ends of lines": {strings.Replace(block(""), "\n", "\r\n", 2), "pod/app"},
		"a line separator": {strings.Replace(block("  annotations: {a: b}\n"), "b}", "\"b\u2028  c\"}", 1),
			"pod/app"},
		"a very long line": {block("  annotations: {a: \"" + strings.Repeat("a ", 1<<18) + "\"}\n"), "pod/app"},
		"contains itself":  {block("  annotations: &a {a: *a}\n"), refused},
		"deep": {block("") + "  x: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) +
			"\n", "pod/app"},
		"too deep": {block("") + "  x: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) +
			"\n", refused},
		"too long":             {"#" + strings.Repeat("a", textLimitBytes), refused},
		"explicit key":         {block("") + "? x\n: y\n", "pod/app"},
		"a comment as the end": {block("") + "# the end", "pod/app"},
		"no end of line":       {strings.TrimSuffix(block(""), "\n"), "pod/app"},
		"capitals": {"apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {Containers: [{name: app}]}\n",
			refused},
	} {
		t.Run(name, func(t *testing.T) {
			_, done, err := means(t, c.text)
			var objects []string
			for _, d := range done {
				if !d.HasNoPods {
					objects = append(objects, d.Object)
				}
			}
			got := strings.Join(objects, " ")
			if err != nil {
				got = refused
			}
			if got != c.want {
				t.Errorf("%q, want %q; %.300v", got, c.want, err)
			}
		})
	}
}

// TestAliasesAreBounded: what unfolds to gigabytes is refused before it does, in documents with
// pods and in others.
func TestAliasesAreBounded(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 lol\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	for name, text := range map[string]string{
		"laughs": laughs.String(),
		"long":   "x: &a \"" + strings.Repeat("a", 100_000) + "\"\ny: [" + strings.Repeat("*a,", 100_000) + "]\n",
		"merges": "x: &a {b: " + strings.Repeat("a", 100_000) + "}\ny: [" + strings.Repeat("{<<: *a},", 40_000) + "]\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := Manifest(text+block(""), options())
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(),
			"the document in line 1: its aliases unfold to more than 4194304 bytes: write out") {
			t.Errorf("%s: %v", name, err)
		}
		if most := uint64(400 * len(text)); after.TotalAlloc-before.TotalAlloc > max(most, 8<<20) {
			t.Errorf("%s: %d bytes allocated for %d", name, after.TotalAlloc-before.TotalAlloc, len(text))
		}
	}
}

// TestTooManyValuesAreRefusedBeforeTheyAreParsed: what has hundreds of thousands of containers,
// anchors or values is refused for less than it would take to parse it, as YAML or JSON.
func TestTooManyValuesAreRefusedBeforeTheyAreParsed(t *testing.T) {
	repeat := func(format string, n int) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, format, i)
		}
		return all.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"100,000 containers in YAML": {block(repeat("  - name: c%d\n    image: abcdef\n", 100_000)),
			"has up to 300"},
		"100,000 containers in JSON": {`{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [` +
			repeat(`{"name": "c%d"},`, 100_000) + `{"name": "app"}]}}`, "has up to 300"},
		"300,000 anchors":          {block("  x:\n" + repeat("  - &a%d bcd\n", 300_000)), "has up to 600"},
		"500,000 values in a flow": {"kind: Pod\nx: [" + strings.Repeat("a,", 500_000) + "]\n", "has up to 500"},
		"200 containers in YAML": {block("") + repeat("  - name: c%d\n", 200),
			"pod/app, in the document in line 1: has 201 containers, of at most 128"},
		"200 containers in JSON": {`{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [` +
			repeat(`{"name": "c%d"},`, 199) + `{"name": "app"}]}}`, "has 200 containers, of at most 128"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, _, err := Manifest(c.text, options())
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes: %d allocated", len(c.text), allocated)
			if out != "" || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.100s, %v; want %q", out, err, c.want)
			}
			if allocated > 32<<20 {
				t.Errorf("%d bytes allocated for %d", allocated, len(c.text))
			}
		})
	}
}

// A List of more pods than can be read again once they have sidecars is refused before it is
// written.
func TestTooManyPodsAreRefusedBeforeTheyAreWritten(t *testing.T) {
	pods := strings.Repeat(jsonPod+",", 5000)
	_, _, err := Manifest(`{"kind": "List", "apiVersion": "v1", "items": [`+pods+jsonPod+`]}`, options())
	if err == nil || !strings.Contains(err.Error(), "is one of too many, which need more than 20000 changes") {
		t.Error(err)
	}
	pods = strings.Repeat(jsonPod+",", 3000)
	_, _, err = Manifest(`{"kind": "List", "apiVersion": "v1", "items": [`+pods+jsonPod+`]}`, options())
	if err == nil || !strings.Contains(err.Error(), "values, of at most 250000: give it in parts") {
		t.Error(err)
	}
}

// TestListGrowsWithItsSize: the work for a List is as much as for its objects, not for each of them
// as much as for all.
func TestListGrowsWithItsSize(t *testing.T) {
	list := func(n int) string {
		return "apiVersion: v1\nkind: List\nitems:\n" +
			strings.Repeat("- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: app\n  spec:\n    containers:\n    - name: "+
				"app\n      image: app\n", n)
	}
	allocated := func(n int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, done, err := means(t, list(n))
		runtime.ReadMemStats(&after)
		if err != nil || len(done) != n {
			t.Fatalf("%d, %v", len(done), err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := allocated(20), allocated(200)
	t.Logf("20 pods: %d bytes allocated, 200: %d", few, many)
	if many > 25*few {
		t.Errorf("200 pods take %d times as much as 20", many/few)
	}
}
