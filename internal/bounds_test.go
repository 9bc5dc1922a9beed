package internal_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// bounds are the figures of SECURITY.md's tables: the beginning of a row, the words that have the
// figure, and the expression that makes it true. The tests of a row measure what the constant
// promises, and some take the constant for it. So a larger one fails here.
var bounds = []struct{ row, says, is string }{
	{"accept, main", "2 s of its own", "clientconn.newConnMinAge"},
	{"accept, metrics", "a place of 64", "admin.connectionsLimit"},
	{"accept, webhook", "a place of 128", "sidecar/admission.connectionLimit"},
	{"handshake without an end", "of 32 KiB sent", "tlsconn.HandshakeBytesLimit"},
	{"handshake without an end", "main 32 s", "clientconn.DefaultReadTimeouts.Head"},
	{"handshake without an end", "metrics 10 s", "admin.readTimeout"},
	{"handshake without an end", "webhook 5 s", "sidecar/admission.headTimeout"},
	{"handshake with certificates", "10 certificates", "tlsconn.CertificatesLimit"},
	{"handshake with certificates", "16 KiB sent", "tlsconn.CertificateBytesLimit"},
	{"handshake with certificates", "64 KiB decoded", "tlsconn.DecodedBytesLimit"},
	{"CPU of certificates", "at most 10 signatures", "tlsconn.CertificatesLimit"},
	{"CPU of certificates", "one at a time for an address", "auth.verificationTurns.Share"},
	{"waiting for such a verification", "a queue of 2048", "auth.verificationTurns.Waiting"},
	{"waiting for such a verification", "1024 for an address", "auth.verificationTurns.WaitingEach"},
	{"waiting for such a verification", "15 s, then 429", "auth.verificationWait"},
	{"idle after the handshake, main", "32 s to a request", "clientconn.DefaultReadTimeouts.Head"},
	{"idle after the handshake, main", "10 s to the settings", "h2.helloTimeout"},
	{"idle after the handshake, main", "3 min between", "serve.idleTimeout"},
	{"idle after the handshake, metrics", "10 s to a request", "admin.readTimeout"},
	{"idle after the handshake, metrics", "2 min between", "admin.idleTimeout"},
	{"idle after the handshake, webhook", "5 s to a request", "sidecar/admission.headTimeout"},
	{"idle after the handshake, webhook", "2 min between", "sidecar/admission.idleTimeout"},
	{"messages of TLS after the handshake", "22 KiB sent", "tlsconn.SilentBytesLimit"},
	{"head, metrics", "20 KiB sent", "admin.headBytes + 4096"}, // net/http's slack
	{"head, metrics", "10 s", "admin.readTimeout"},
	{"head, webhook", "8 KiB sent", "sidecar/admission.httpHeadLimitBytes + 4096"},
	{"head, webhook", "5 s", "sidecar/admission.headTimeout"},
	{"body, metrics", "10 s", "admin.readTimeout"},
	{"body, webhook", "32 KiB, and", "sidecar/admission.headBytes"},
	{"body, webhook", "9 MiB of longer ones", "sidecar/admission.textsLimitBytes"},
	{"body, webhook", "decoded 24 MiB", "sidecar/admission.workLimitBytes"},
	{"body, webhook", "10 s", "sidecar/admission.requestTimeout"},
	{"answer not taken, metrics", "8 large answers", "admin.requestsLimit"},
	{"answer not taken, metrics", "30 s", "admin.writeTimeout"},
	{"answer not taken, webhook", "15 s", "sidecar/admission.answerTimeout"},
	{"HTTP/2: heads of open streams", "32 KiB for a connection", "serve.http2UnprovenBytes"},
	{"HTTP/2: heads of open streams", "four answers", "h2.unprovenRemainders"},
	{"HTTP/2: heads of open streams", "256 KiB for a connection", "serve.http2ProvenBytes"},
	{"HTTP/2: heads of open streams", "1 KiB for a stream", "h2.streamCost"},
	{"HTTP/2: heads of open streams", "200 bytes for a field", "h2.fieldCost"},
	{"HTTP/2: one head above", "above 32 KiB", "serve.http2HeadBytes"},
	{"HTTP/2: one head above", "up to 1 MiB", "http.DefaultMaxHeaderBytes"},
	{"HTTP/2: a frame", "16 KiB", "h2.minFrame"},
	{"HTTP/2: a frame", "SETTINGS_MAX_FRAME_SIZE 16384", "h2.minFrame"},
	{"HTTP/2: control frames", "64 KiB", "h2.unprovenFlood"},
	{"HTTP/2: control frames", "1 MiB", "h2.outboxFlood"},
	{"HTTP/2: request bodies", "65,535 bytes", "h2.firstWindow"},
	{"HTTP/2: request bodies", "256 KiB for a stream", "serve.http2WindowBytes"},
	{"HTTP/2: handlers", "4 for a connection", "serve.http2HandlersLimit"},
	{"HTTP/2: handlers", "100 for a connection", "serve.http2Streams"},
	{"HTTP/2: a head that does not end", "32 s", "clientconn.DefaultReadTimeouts.Head"},
	{"HTTP/2: a head that does not end", "10 s if it is large", "http1.HeadArrivalTimeout"},
	{"HTTP/2: a head that does not end", "16 empty", "h2.emptyFrameLimit"},
	{"HTTP/1.1: a head of up to", "up to 16 KiB", "http1.OrdinaryHeadBytes"},
	{"HTTP/1.1: a head of up to", "above 2 KiB", "http1.keptHeadBytes"},
	{"HTTP/1.1: a head above that", "1 MiB + 4 KiB", "flowcontrol.LargestHeadBytes - 4096"},
	{"HTTP/1.1: a head above that", "for 10 s", "http1.HeadArrivalTimeout"},
	{"all: bodies of up to", "up to 1 MiB", "passthrough.OwnedBodyLimit"},
	{"all: bodies of up to", "16 MiB for all senders", "flowcontrol.unprovenBodyBytesLimit"},
	{"all: bodies of up to", "an eighth", "flowcontrol.unprovenFraction"},
	{"all: requests under way", "an eighth", "flowcontrol.unprovenFraction"},
	{"all: a body that is not finished", "500 ms", "clientconn.LingerTimeout"},
	{"all: a body that is not finished", "1 MiB read", "clientconn.lingerBytesLimit"},
	{"all: lists and states", "half of it for a user", "flowcontrol.userListFraction"},
	{"all: headers of an impersonation", "512 KiB for a request", "auth.maxImpersonationBytes"},
	{"all: Accept", "1,000 elements", "plan.acceptElementsLimit"},
	{"all: the head of the API server's answer", "1 MiB for an exchange", "upstream/transport.answerHeadBytes"},
	{"metrics: readers", "64, a keyed hash", "admin.rememberedReadersLimit"},
	{"webhook", "a budget of 88 MiB", "sidecar/webhook.budgetBytes"},
	{"log", "4 KiB for a text", "logging.logTextBytes"},
	{"log", "256 KiB for an entry", "logging.logLineBytes"},
	{"coalesced lists", "256 requests", "16 * passthrough.sharedAnswersLimit"},
	{"coalesced lists", "of 4 KiB", "passthrough.laneKeyBytesLimit"},
	{"coalesced lists", "16 answers", "passthrough.sharedAnswersLimit"},
	{"coalesced lists", "of 8 MiB", "passthrough.sharedBytesLimit"},
	{"reader of stderr", "1 MiB of others", "logging.queueBytes"},
	{"reader of stderr", "0.1 s", "logging.blockedTimeout"},
	{"audit log", "| 1 s |", "audit.writeTimeout"},
	{"audit log", "up to 16 MiB", "audit.answerBytes"},
	{"collector of spans", "10 s for an export", "tracing.exportTimeout"},
	{"credential plugin", "16 goroutines", "upstream/transport.pluginCallLimit"},
	{"credential plugin", "5 s, then none", "upstream/transport.credentialTimeout"},
	{"file of a certificate", "3 s, then none", "rotation.readTimeout"},
	{"name server", "4 s", "upstream/transport.dialTimeout"},
	{"API server", "75 s for the head", "upstream.headTimeout"},
	{"API server", "5 s for a review", "auth.reviewTimeout"},
	{"any of these", "12 s after", "../cmd/proxy.endTimeout"},
}

func TestBoundsAreThoseOfSECURITY(t *testing.T) {
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	code := packageValues{}
	for _, b := range bounds {
		value, err := code.evaluate(b.is)
		if err != nil {
			t.Errorf("%s: %v", b.is, err)
			continue
		}
		if problem := differs(string(text), b.row, b.says, value); problem != "" {
			t.Errorf("%s: %s", b.is, problem)
		}
		if differs(string(text), b.row, b.says, 2*value) == "" {
			t.Errorf("twice as large, %s would go unnoticed", b.is)
		}
	}
}

// boundUnits are what a figure is multiplied with, and boundWords figures without digits.
var (
	boundUnits = map[string]float64{
		"": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1e6, "s": 1e9, "min": 60e9,
	}
	boundWords  = map[string]float64{"one": 1, "half": 2, "four": 4, "eighth": 8}
	boundFigure = regexp.MustCompile(`([0-9][0-9,.]*|one|half|four|eighth)(?: (bytes|KiB|MiB|ms|s|min)\b)?`)
)

// differs says how a row differs from a value, in bytes or nanoseconds; "": its words have that
// value, to a hundredth of their unit.
func differs(text, row, says string, value float64) string {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| "+row) || !strings.Contains(line, says) {
			continue
		}
		found := boundFigure.FindStringSubmatch(says)
		digits := strings.ReplaceAll(found[1], ",", "")
		figure := boundWords[digits]
		if figure == 0 {
			figure, _ = strconv.ParseFloat(digits, 64)
		}
		if unit := boundUnits[found[2]]; math.Abs(figure*unit-value) > unit/100 {
			return fmt.Sprintf("SECURITY.md says %q, the code has %g", says, value/unit)
		}
		return ""
	}
	return fmt.Sprintf("SECURITY.md has no row %q that says %q", row, says)
}

// packageValues are the constants and variables of packages below internal/, by package and name.
type packageValues map[string]map[string]ast.Expr

// evaluate computes an expression of literals and of names with their packages: a constant, or the
// field of a variable that is set where it is declared.
func (d packageValues) evaluate(expression string) (float64, error) {
	var folder string
	if i := strings.LastIndex(expression, "/"); i >= 0 { // no expression divides
		folder, expression = expression[:i+1], expression[i+1:]
	}
	parsed, err := parser.ParseExpr(expression)
	if err != nil {
		return 0, err
	}
	value, err := d.valueOf(parsed, "", folder)
	if err != nil {
		return 0, err
	}
	number, _ := constant.Float64Val(constant.ToFloat(value))
	return number, nil
}

// known are values of other modules.
var known = map[string]int64{
	"time.Millisecond": 1e6, "time.Second": 1e9, "time.Minute": 60e9, "http.DefaultMaxHeaderBytes": 1 << 20,
}

// valueOf computes an expression in a package; above is the folder of packages that it names.
func (d packageValues) valueOf(e ast.Expr, pkg, above string) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), nil
	case *ast.ParenExpr:
		return d.valueOf(e.X, pkg, above)
	case *ast.Ident:
		return d.named(pkg, e.Name, "")
	case *ast.SelectorExpr:
		if inner, ok := e.X.(*ast.SelectorExpr); ok { // package.variable.field
			return d.named(above+inner.X.(*ast.Ident).Name, inner.Sel.Name, e.Sel.Name)
		}
		of := e.X.(*ast.Ident).Name
		if value, ok := known[of+"."+e.Sel.Name]; ok {
			return constant.MakeInt64(value), nil
		}
		return d.named(above+of, e.Sel.Name, "")
	case *ast.BinaryExpr:
		x, err := d.valueOf(e.X, pkg, above)
		if err != nil {
			return nil, err
		}
		y, err := d.valueOf(e.Y, pkg, above)
		if err != nil {
			return nil, err
		}
		if e.Op == token.SHL || e.Op == token.SHR {
			bits, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(bits)), nil
		}
		return constant.BinaryOp(x, e.Op, y), nil
	}
	return nil, fmt.Errorf("an expression of %T is not computed here", e)
}

// named computes a constant of a package, or the field of one of its variables.
func (d packageValues) named(pkg, name, field string) (constant.Value, error) {
	if d[pkg] == nil {
		if err := d.read(pkg); err != nil {
			return nil, err
		}
	}
	value := d[pkg][name]
	if value != nil && field != "" {
		value = fieldIn(value, field)
	}
	if value == nil {
		return nil, fmt.Errorf("package %s declares no %s %s", pkg, name, field)
	}
	return d.valueOf(value, pkg, "")
}

// fieldIn is what a field is set to in the first literal of an expression that sets it.
func fieldIn(e ast.Expr, field string) (value ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		if pair, ok := n.(*ast.KeyValueExpr); ok && value == nil {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == field {
				value = pair.Value
			}
		}
		return true
	})
	return value
}

// read remembers what the files of a package declare.
func (d packageValues) read(pkg string) error {
	files, err := filepath.Glob(pkg + "/*.go")
	if err != nil {
		return err
	}
	d[pkg] = map[string]ast.Expr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok && len(value.Values) == len(value.Names) {
					for i, name := range value.Names {
						d[pkg][name.Name] = value.Values[i]
					}
				}
			}
		}
	}
	return nil
}
