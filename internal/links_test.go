package internal_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	// link finds the target of a link in Markdown.
	link = regexp.MustCompile(`\]\(<?([^)\s>]+)>?\)`)
	// heading finds a title. Its text is the first group.
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	// codeBlock finds what shows text and does not mean it.
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
)

// TestLinksLeadSomewhere finds the file, and the heading or anchor in it, of every link from one
// page of the repository to another.
func TestLinksLeadSomewhere(t *testing.T) {
	files := texts(t, ".md")
	found := 0
	for file, text := range files {
		for _, target := range linksOf(text) {
			found++
			if fault := deadEnd(files, file, target); fault != "" {
				t.Errorf("%s links to %s: %s", file, target, fault)
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d links were found", found)
	}
}

// TestDocumentsAreListed finds every page of the repository's own folder and of docs in README.md,
// which lists them.
func TestDocumentsAreListed(t *testing.T) {
	files := texts(t, ".md")
	listed := map[string]bool{"README.md": true}
	for _, target := range linksOf(files["README.md"]) {
		file, _, _ := strings.Cut(target, "#")
		listed[file] = true
	}
	for file := range files {
		if folder := path.Dir(file); (folder == "." || folder == "docs") && !listed[file] {
			t.Errorf("README.md does not link to %s", file)
		}
	}
}

// linksOf are the targets of a page's links that lead to files.
func linksOf(text string) (targets []string) {
	text = inlineCode.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "")
	for _, match := range link.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(match[1], ":") {
			targets = append(targets, match[1])
		}
	}
	return targets
}

// deadEnd says why a link from a file leads nowhere, or nothing.
func deadEnd(files map[string]string, from, target string) string {
	file, fragment, _ := strings.Cut(target, "#")
	if file == "" {
		file = from
	} else {
		file = path.Join(path.Dir(from), file)
	}
	text, page := files[file]
	if !page {
		if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(file))); err != nil {
			return "there is no such file"
		}
		return ""
	}
	if fragment != "" && !fragmentsOf(text)[fragment] {
		return "the page has no such heading"
	}
	return ""
}

// fragmentsOf are the names of a page's anchors and headings, as forges make them of their texts.
func fragmentsOf(text string) map[string]bool {
	names := map[string]bool{}
	for _, match := range anchor.FindAllStringSubmatch(text, -1) {
		names[match[1]] = true
	}
	for _, match := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		title := link.ReplaceAllString(anchor.ReplaceAllString(match[1], ""), "]")
		names[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.TrimSpace(title))] = true
	}
	return names
}

// TestLinks shows which links lead somewhere and which do not.
func TestLinks(t *testing.T) {
	files := map[string]string{
		"a.md":      "# A\n\n## The `age` of it, in s\n\n```sh\n# None\n```\n<a id=\"w-1\"></a>\n",
		"docs/b.md": "",
	}
	for name, row := range map[string]struct{ text, want string }{
		"a heading":                   {"[x](../a.md#the-age-of-it-in-s) [x](../a.md#a)", ""},
		"an anchor":                   {"[x](../a.md#w-1)", ""},
		"a file":                      {"[x](b.md) [x](../docs/flags.md)", ""},
		"another site":                {"[x](https://example.com/none.md#none)", ""},
		"code":                        {"`[x](none.md)`", ""},
		"a missing file":              {"[x](none.md)", "none.md: there is no such file"},
		"a missing heading":           {"[x](../a.md#b)", "../a.md#b: the page has no such heading"},
		"a comment in a block":        {"[x](../a.md#none)", "../a.md#none: the page has no such heading"},
		"a missing heading of itself": {"[x](#a)", "#a: the page has no such heading"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, target := range linksOf(row.text) {
				if fault := deadEnd(files, "docs/b.md", target); fault != "" {
					got = append(got, target+": "+fault)
				}
			}
			if text := strings.Join(got, ", "); text != row.want {
				t.Errorf("%q, want %q", text, row.want)
			}
		})
	}
}
