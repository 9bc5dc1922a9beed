package auth

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"spillway/internal/auth/authtest"
)

func TestBearer(t *testing.T) {
	f := func(want string, values ...string) {
		t.Helper()
		token, ok := AuthnRequest{Header: http.Header{"Authorization": values}}.bearer()
		if got := token.Reveal(); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", values, got, ok, want)
		}
	}
	f("")
	f("", "")
	f("t", "Bearer t")
	f("t", "bearer t")
	f("t", "BEARER t")
	f("t", "  Bearer t  ")
	f("t", "Bearer t and more")
	f("", "Bearer")
	f("", "Bearer ")
	f("", "Bearer  t") // the API server warns of that, and ignores it
	f("", "Basic t")
	f("", "Bearert")
	f("", "t")
	f("", "Bearer t", "Bearer t")
	f("", "Bearer t", "")
}

func TestImpersonates(t *testing.T) {
	f := func(want bool, names ...string) {
		t.Helper()
		r := AuthnRequest{Header: http.Header{"Authorization": {"Bearer t"}}}
		for _, name := range names {
			r.Header[name] = []string{""}
		}
		if got := r.impersonates(); got != want {
			t.Errorf("%q: got %v", names, got)
		}
	}
	f(false)
	f(false, "X-Impersonate-User", "Impersonate", "Impersonate_user")
	f(true, "Impersonate-User")
	f(true, "impersonate-user")
	f(true, "Impersonate-Extra-Scopes")
	f(true, "Impersonate-Anything")
}

// FuzzBearer: a token is never empty, has no blanks, and comes from the header.
func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"Bearer t", "bearer  t", " Bearer\tt", "BEARER a b c", "Basic eA==", "", "\x00Bearer t",
		"Bearer \u00a0t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, ok := AuthnRequest{Header: http.Header{"Authorization": {value}}}.bearer()
		text := token.Reveal()
		if ok != (text != "") || strings.Contains(text, " ") || !strings.Contains(value, text) {
			t.Errorf("%q: %q, %v", value, text, ok)
		}
	})
}

func TestTokenExpiry(t *testing.T) {
	f := func(token string, want int64) {
		t.Helper()
		at := tokenExpiry(token)
		if at.IsZero() && want == 0 {
			return
		}
		if at.Unix() != want {
			t.Errorf("%q: got %v, want %d", token, at, want)
		}
	}
	f(authtest.JWT(`{"exp":1800000100,"iss":"x"}`), 1800000100)
	f(authtest.JWT(`{"exp":1800000100.9}`), 1800000100)
	f(authtest.JWT(`{"exp":1e9}`), 1000000000)
	f(authtest.JWT(`{"exp":null}`), 0)
	f(authtest.JWT(`{"exp":"1800000100"}`), 0)
	f(authtest.JWT(`{"exp":-5}`), 0)
	f(authtest.JWT(`{"exp":1e300}`), 0)
	f(authtest.JWT(`{}`), 0)
	f(authtest.JWT(`[]`), 0)
	f(authtest.JWT(`{"exp":1800000100}`)+".more", 0)
	f("opaque", 0)
	f("a.b", 0)
	f("..", 0)
	f("", 0)
	f("e30.!!!.c2ln", 0)
}

// FuzzTokenExpiry: whatever a token says of itself, its end can be compared with any time there is.
func FuzzTokenExpiry(f *testing.F) {
	for _, claims := range []string{`{"exp":1800000100}`, `{"exp":1e308}`, `{"exp":-1}`, `{"exp":{}}`,
		`{"exp":0.1,"exp":2}`, ``} {
		f.Add(authtest.JWT(claims))
	}
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		end := tokenExpiry(token)
		if end.IsZero() {
			return
		}
		if end.Before(time.Unix(0, 0)) || end.After(time.Unix(1<<40, 0)) || !end.Add(time.Hour).After(end) {
			t.Errorf("%q ends %v", token, end)
		}
		if strings.Count(token, ".") != 2 {
			t.Errorf("%q is no JWT", token)
		}
	})
}

func FuzzExtraKey(f *testing.F) {
	for _, seed := range []string{"Scopes", "Example.com%2fFoo", "%", "%zz", "%41", "Ä"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, encoded string) {
		key := extraKey(encoded)
		if !strings.Contains(encoded, "%") &&
			strings.ContainsFunc(key, func(r rune) bool { return unicode.IsUpper(r) && unicode.ToLower(r) != r }) {
			t.Errorf("%q: %q is not lower case", encoded, key)
		}
		if len(key) > 3*len(encoded) {
			t.Errorf("%q grows to %q", encoded, key)
		}
	})
}
