package fuzzdiff

import (
	"encoding/base64"
	"strconv"
	"strings"

	"spillway/test/framework/exchange"
)

// version is a resourceVersion, mostly one that means something (W-27).
func (g *generator) version() string {
	var text string
	versions := g.state.Versions
	if g.sober {
		return one(g, "0", "0", number(one(g, versions...)))
	}
	g.weighted(
		choice{40, func() { text = "0" }},
		choice{45, func() { text = number(one(g, versions...)) }},
		choice{5, func() { text = number(one(g, g.state.Ancient...)) }},
		choice{2, func() { text = number(versions[len(versions)-1] - 1) }},
		choice{2, func() { text = "1" }},
		choice{1, func() { text = "0" + number(one(g, versions...)) }},
		choice{1, func() { text = one(g, "00", "01", "000") }},
		choice{1, func() { text = one(g, "100000000", "9223372036854775807", "9223372036854775808") }},
		choice{3, func() {
			text = one(g, "", "abc", "-1", "+1", " 1", "1 ", "1.5", "0x10", "1e3", "18446744073709551616", "٣", "0,1", "null",
				"\x00")
		}},
	)
	return text
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func (g *generator) match() string {
	if g.sober {
		return one(g, "NotOlderThan", "Exact")
	}
	return one(g, "NotOlderThan", "NotOlderThan", "NotOlderThan", "Exact", "Exact", "Exact", "Exact", "", "exact",
		"notolderthan", "Foo")
}

func (g *generator) limit() string {
	if g.odd(12) {
		return one(g, "", "abc", "1.5", "9223372036854775808", "9223372036854775807", "+1", "-5", " 1", "0x1", "1_0", "00")
	}
	return one(g, "1", "1", "2", "2", "3", "5", "0", "-1", "01", "500")
}

// token is a continue token: honest, changed, made up, or none at all (W-80 to W-83).
func (g *generator) token() string {
	honest := one(g, g.state.Tokens...)
	if g.sober || g.percent(60) {
		return honest
	}
	said, err := exchange.DecodeToken(honest)
	if err != nil {
		return honest
	}
	if g.percent(25) {
		return g.mangled(honest)
	}
	switch g.IntN(3) {
	case 0:
		said.RV = one(g, int64(one(g, g.state.Versions...)), int64(one(g, g.state.Ancient...)), 0, -1, -7, 1, 100000000)
	case 1:
		said.Start = one(g, "", "/", "a", "/a", "a\x00", "/a\x00", "/"+one(g, g.state.Namespaces...)+"/\x00", "../x", "/a//b",
			"a/../b", "/zzz\x00", "\x00", "/b/a\x00\x00", "é", "/.")
	case 2:
		said.Version = one(g, "v1", "", "meta.k8s.io/v1beta1", "META.K8S.IO/V1")
	}
	return exchange.TextOfToken(said)
}

// mangled is a token that was damaged, or that was encoded in a way of its own.
func (g *generator) mangled(token string) string {
	plain, _ := base64.RawURLEncoding.DecodeString(token) // it is honest
	return one(g,
		token+"=", token+"==", token[:g.IntN(len(token))], token+"A", "!"+token, "nonsense", strings.ToUpper(token),
		base64.RawURLEncoding.EncodeToString([]byte(" "+string(plain)+"\n")),
		base64.RawURLEncoding.EncodeToString([]byte(string(plain)+"x")),
		base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), "{", `{"x":1,`, 1))),
		base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), `"rv":`, `"rv":1,"rv":`, 1))),
		base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(plain), `"rv":`, `"RV":`, 1))),
		base64.RawURLEncoding.EncodeToString([]byte(`null`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":"5","start":"/a\u0000"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1.5,"start":"/a\u0000"}`)),
		base64.StdEncoding.EncodeToString(plain),
	)
}

// selectors adds either, both or none.
func (g *generator) selectors(r Resource) {
	if g.percent(22) {
		g.param("labelSelector", g.broken(g.labelSelector()))
	}
	if g.percent(18) {
		g.param("fieldSelector", g.broken(g.fieldSelector(r)))
	}
}

// broken is text, now and then with a character too many or too few.
func (g *generator) broken(text string) string {
	if !g.odd(12) || text == "" {
		return text
	}
	i := g.IntN(len(text))
	switch g.IntN(3) {
	case 0:
		return text[:i] + text[i+1:]
	case 1:
		return text[:i] + one(g, "=", "!", ",", "(", ")", " ", "<", "é", "\\", "\"", "/", "\n", "%", ";", "&") + text[i:]
	}
	return text[:i]
}

// labelSelector is W-150.
func (g *generator) labelSelector() string {
	var terms []string
	for range one(g, 1, 1, 1, 2, 3) {
		terms = append(terms, g.labelTerm())
	}
	return strings.Join(terms, one(g, ",", ",", ",", ", ", " ,\t"))
}

func (g *generator) labelTerm() string {
	key := one(g, "app", "app", "tier", "missing", "kubernetes.io/metadata.name", "example.com/odd_Key.x")
	value := one(g, "x", "y", "z", "", "1", "5", "a-b_c.D")
	n := 9
	if g.sober {
		n = 6
	}
	switch g.IntN(n) {
	case 0, 1:
		return key + "=" + value
	case 2:
		return key + one(g, "==", " = ", "  ==") + value
	case 3:
		return key + "!=" + value
	case 4:
		return key + one(g, " in (", " in(", " notin (", "  notin  (") + one(g, "x", "x,y", "y, z ", "", "x,,y", ",") + ")"
	case 5:
		return one(g, "", "!", "! ") + key
	case 6:
		return key + one(g, ">", "<", " > ") + one(g, "1", "5", "-3", "abc", "99999999999999999999")
	case 7:
		return one(g, "", " ", "\t", "in", "notin", "x in", "a/b/c", "-bad-", strings.Repeat("k", 64),
			"app="+strings.Repeat("v", 64))
	}
	return key + "=" + value
}

// fieldSelector is W-151, W-152.
func (g *generator) fieldSelector(r Resource) string {
	var terms []string
	for range one(g, 1, 1, 1, 2, 2, 3) {
		terms = append(terms, g.fieldTerm(r))
	}
	return strings.Join(terms, ",")
}

func (g *generator) fieldTerm(r Resource) string {
	operator := one(g, "=", "=", "==", "!=")
	switch {
	case g.odd(8):
		return one(g, "", "foo", "spec.foo"+operator+"1", "metadata.labels"+operator+"x", `metadata.name=\x`,
			`metadata.name=a\,b`, `metadata.name=\\`,
			"metadata.name = a", "metadata.name=a=b", ".metadata.name=a", "metadata.uid=x", "=", "!=", "metadata.name",
			"METADATA.NAME=a")
	case len(r.Fields) > 0 && g.percent(60):
		// Ranging over a map would make a request depend on more than its seed.
		keys := sorted(r.Fields)
		key := one(g, keys...)
		return key + operator + one(g, append(r.Fields[key], "", "none")...)
	case g.percent(30):
		return "metadata.namespace" + operator + one(g, append(g.state.Namespaces, "")...)
	}
	return "metadata.name" + operator + one(g, append(r.Names, "", "zz")...)
}
