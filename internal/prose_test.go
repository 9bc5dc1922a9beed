package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"spillway/internal/domain"
)

const (
	ruleWords    = "words"    // banned words in comments, help texts, log messages and Markdown prose
	ruleCode     = "code"     // lines of code over codeColumns
	ruleComments = "comments" // comment lines and lines of Markdown prose over proseColumns
	ruleTypes    = "types"    // exported types that another package of internal/ exports, too; see sameName
	codeColumns  = 120
	proseColumns = 100
)

// banned are words that hide which component acts, and words and phrases for which there is a plain
// or a proper term.
var banned = regexp.MustCompile(`(?i)\b(who|whom|whoever|nobody|somebody|everybody|anybody|he|him|his|himself|` +
	`(is|are|was|were|be|been|being) (told|asked)|(comes?|came|coming) back|lets? (\w+ )?in|` +
	`anew|in vain|for ever|(the|an) (\w+ )?apiservers?)\b`)

// sameName are types that may share their name with a type of another package, and why: by name, or
// by package and name.
var sameName = map[string]string{
	"Options": "the options of its package's constructor: always written with the package",
	"Metrics": "the metrics of its package, as above",
	"Answer":  "an answer that is made here, and that of a review: always written with the package",
	"Refusal": "why a package refuses: as above",

	"fakeapiserver.Request":  "fakeapiserver is an API server for tests; its names are the API server's",
	"fakeapiserver.Resource": "as above",
	"fakeapiserver.Server":   "as above",
	"fakeapiserver.Snapshot": "as above",
	"status.Eviction":        "the JSON of the status page; its members are named for what they describe",
	"status.Resource":        "as above",
	"status.Watch":           "as above",

	"cache.Resource":     "the cached state of one object.Resource",
	"freshness.Upstream": "what proofs ask of upstream",
	"h2.Stream":          "an HTTP/2 stream in the words of RFC 9113",
}

// excepted reports that sameName has a type of the package in a folder.
func excepted(folder, name string) bool {
	return sameName[name] != "" || sameName[path.Base(folder)+"."+name] != ""
}

// ownersNames become as short as the names without an owner, which hack/own.sh has replaced.
var ownersNames = sync.OnceValue(func() *strings.Replacer {
	values, err := os.ReadFile("../charts/spillway/values.yaml")
	if err != nil {
		panic(err)
	}
	registry := regexp.MustCompile(`(?m)^  registry: (\S+)`).FindSubmatch(values)
	const without = "a.name.of.20.letters" // no placeholder, which the script would replace
	return strings.NewReplacer(module+"/", "spillway/", domain.Domain, without, string(registry[1]), without)
})

// columnsOf is the length of a line in characters, with short names.
func columnsOf(line string) int { return utf8.RuneCountInString(ownersNames().Replace(line)) }

// finding is a place where a file breaks a rule.
type finding struct {
	rule string
	line int
	text string
}

// TestProse reports what breaks a rule.
func TestProse(t *testing.T) {
	found := map[string][]finding{}
	packages := map[string][]string{} // by the name of an exported type
	for file, text := range texts(t, ".go", ".md", ".yaml", ".yml", ".json", ".svg", ".tpl", ".txt", ".sh", ".mk",
		"Makefile", "Dockerfile") {
		switch path.Ext(file) {
		case ".go":
		case ".md":
			found[file] = inMarkdown(text)
			continue
		default:
			found[file] = inOther(file, text)
			continue
		}
		var err error
		if found[file], err = inGo(file, text); err != nil {
			t.Fatal(err)
		}
		for _, f := range found[file] {
			if in := packages[f.text]; f.rule == ruleTypes && !slices.Contains(in, path.Dir(file)) {
				packages[f.text] = append(in, path.Dir(file))
			}
		}
	}
	needless := maps.Clone(sameName)
	for name, folders := range packages {
		if len(folders) > 1 {
			packages[name] = slices.DeleteFunc(folders, func(folder string) bool {
				delete(needless, name)
				delete(needless, path.Base(folder)+"."+name)
				return excepted(folder, name)
			})
		}
	}
	for name := range needless {
		t.Errorf("sameName has %s, which no other package exports", name)
	}
	for file := range found {
		found[file] = slices.DeleteFunc(found[file], func(f finding) bool {
			return f.rule == ruleTypes && (excepted(path.Dir(file), f.text) || len(packages[f.text]) < 2)
		})
	}

	for _, file := range slices.Sorted(maps.Keys(found)) {
		for _, f := range found[file] {
			t.Errorf("%s:%d: rule %s: %s", file, f.line, f.rule, f.text)
		}
	}
}

// TestFindings shows what breaks a rule and what does not.
func TestFindings(t *testing.T) {
	long := strings.Repeat("long ", 30)
	f := func(findings []finding, want ...string) {
		t.Helper()
		var got []string
		for _, f := range findings {
			got = append(got, fmt.Sprint(f.rule, " ", f.line))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %q", findings, want)
		}
	}
	code := "package a\n\n// Whoever comes back.\ntype T int // the whole\n\nvar a, b = `who\n" + long + "`, 1\n\n" +
		"func f() {\n\tlog.Warn(\"nobody reads\", \"who\"+x)\n\tg(\"who\")\n\tf.StringVar(&a, \"b\", \"\", `he`)\n}" +
		" // " + long + "\n//" + long + "\n"
	found, err := inGo("internal/a/a.go", code)
	if err != nil {
		t.Fatal(err)
	}
	f(found, "words 3", "words 3", "types 4", "words 10", "words 10", "words 12", "code 13", "comments 14")
	f(inMarkdown("# Who\n`who` is told\n```\nwho\n```\n| "+long+"|\n"+long), "words 1", "words 2", "comments 7")
	f(inMarkdown("The apiserver begins anew.\n`the apiserver`, a kube-apiserver\nof an older apiserver"),
		"words 1", "words 1", "words 3")
	f(inMarkdown("<!-- Made by a test. -->\nwho"))
	f(inOther("a.yaml", "# who\na: b # who\nb: who # a\n# "+long+"\ndescription: who\nc: 'a# who'"),
		"words 1", "words 2", "comments 4", "words 5")
	f(inOther("a.json", "{\n\"description\": \"who\",\n\"who\": 1}"), "words 2")
	f(inOther("a.svg", "<text id='who'>a</text>\n<desc>who</desc>"), "words 2")
	f(inOther("NOTES.txt", "who {{ .Values.who }}\n{{ who }}"), "words 1")
	f(inOther("a.tpl", "{{- /* a */}}\n# who"), "words 2")
}

// spoken are calls and fields whose literals operators and clients read: log messages, errors,
// flags, help texts, Statuses.
var spoken = regexp.MustCompile(`^(Debug|Info|Warn|Error|\w*VarP?|NewDesc|(Counter|Gauge)(Vec|Func)?|desc|metric|` +
	`Help|Short|Long|text|zero|remedy|because|New|Errorf|BadRequest|BadGateway|Forbidden|Unavailable|Message)$`)

// inGo finds what breaks a rule in a Go file, and all exported types that it declares.
func inGo(file, text string) (found []finding, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	words := func(at token.Pos, text string) {
		for i, line := range strings.Split(text, "\n") {
			for _, word := range banned.FindAllString(line, -1) {
				found = append(found, finding{ruleWords, set.Position(at).Line + i, word + ": " + strings.TrimSpace(line)})
			}
		}
	}
	comment, raw := map[int]bool{}, map[int]bool{} // by line
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			words(c.Pos(), c.Text)
			for line := set.Position(c.Pos()).Line; line <= set.Position(c.End()).Line; line++ {
				comment[line] = true
			}
		}
	}
	literals := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				words(literal.Pos(), literal.Value)
			}
			return true
		})
	}
	test := strings.HasSuffix(file, "_test.go")
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			for line := set.Position(n.Pos()).Line; line < set.Position(n.End()).Line; line++ {
				raw[line], raw[line+1] = true, true
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && !test && spoken.MatchString(f.Sel.Name) {
				literals(n)
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && !test && spoken.MatchString(key.Name) {
				literals(n.Value)
			}
		case *ast.TypeSpec:
			if n.Name.IsExported() && !test && strings.HasPrefix(file, "internal/") {
				found = append(found, finding{ruleTypes, set.Position(n.Pos()).Line, n.Name.Name})
			}
		}
		return true
	})
	for i, line := range strings.Split(text, "\n") {
		start, columns := strings.TrimSpace(line), columnsOf(line)
		switch alone := comment[i+1] && (strings.HasPrefix(start, "//") || !strings.Contains(line, "//")); {
		case raw[i+1] || strings.HasPrefix(start, "//go:"):
		case alone && columns > proseColumns && breakable(start):
			found = append(found, finding{ruleComments, i + 1, line})
		case !alone && columns > codeColumns:
			found = append(found, finding{ruleCode, i + 1, line})
		}
	}
	return found, nil
}

var inlineCode = regexp.MustCompile("`[^`]*`")

// inMarkdown finds what breaks a rule in a page that is not generated, outside its code blocks.
func inMarkdown(text string) (found []finding) {
	if strings.HasPrefix(text, "<!-- Made by") {
		return nil
	}
	block := false
	for i, line := range strings.Split(text, "\n") {
		start := strings.TrimSpace(line)
		if strings.HasPrefix(start, "```") {
			block = !block
		}
		if block {
			continue
		}
		for _, word := range banned.FindAllString(inlineCode.ReplaceAllString(line, ""), -1) {
			found = append(found, finding{ruleWords, i + 1, word + ": " + line})
		}
		if columnsOf(line) > proseColumns && !strings.HasPrefix(start, "|") && breakable(start) {
			found = append(found, finding{ruleComments, i + 1, line})
		}
	}
	return found
}

var (
	// templated finds what Helm replaces, but for comments.
	templated = regexp.MustCompile(`\{\{-?\s*[^/\s-][^}]*\}\}`)
	// hashComment finds a comment, after what it follows.
	hashComment = regexp.MustCompile(`^(|.*\s)# (.*)$`)
	// jsonText finds what a schema or a dashboard says.
	jsonText = regexp.MustCompile(`"(?:description|title|summary|text|content)": *"((?:[^"\\]|\\.)*)"`)
	// yamlText finds what an alert says.
	yamlText = regexp.MustCompile(`^\s*(?:description|summary|message|title): *(.+)$`)
)

// stamped are scripts whose bytes decide whether programs are built again: their comments stay as
// wide as they are.
var stamped = map[string]bool{
	"test/framework/controlplane/build.sh": true, "test/framework/node/build.sh": true,
	"test/framework/node/older.sh": true,
}

// inOther finds what breaks a rule in the comments of a file of settings or commands, in what a
// schema, a dashboard or an alert says, and in all of a picture's text and of notes.
func inOther(file, text string) (found []finding) {
	picture := strings.HasSuffix(file, ".svg")
	for i, line := range strings.Split(text, "\n") {
		said, comment := "", false
		switch {
		case picture:
			said = svgTag.ReplaceAllString(line, " ")
		case strings.HasSuffix(file, ".json"):
			for _, match := range jsonText.FindAllStringSubmatch(line, -1) {
				said += match[1] + " "
			}
		case strings.HasSuffix(file, ".txt"):
			said = templated.ReplaceAllString(line, "")
		default:
			if match := hashComment.FindStringSubmatch(line); match != nil {
				said, comment = match[2], strings.TrimSpace(match[1]) == "" && !stamped[file]
			} else if match := yamlText.FindStringSubmatch(line); match != nil {
				said = templated.ReplaceAllString(match[1], "")
			}
		}
		for _, word := range banned.FindAllString(inlineCode.ReplaceAllString(said, ""), -1) {
			found = append(found, finding{ruleWords, i + 1, word + ": " + strings.TrimSpace(line)})
		}
		if comment && columnsOf(line) > proseColumns && breakable(said) {
			found = append(found, finding{ruleComments, i + 1, line})
		}
	}
	return found
}

// breakable reports whether a line is more than a marker and one word.
func breakable(line string) bool { return len(strings.Fields(line)) > 2 }
