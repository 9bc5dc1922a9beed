// Command parsers compares what an HTTP/1.1 server costs by fasthttp and by net/http: a small GET,
// a LIST of a megabyte, a connection with one GET, and a connection that rests. Each server is a
// process of its own that does nothing else, so the figures are those of the library alone (design
// D13).
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"spillway/bench/rig"
)

var (
	rounds  = flag.Int("rounds", 5, "how often each server is measured, in turn; the median counts")
	window  = flag.Duration("window", 3*time.Second, "how long each measurement lasts")
	resting = flag.Int("resting", 2000, "connections that rest")
)

const (
	workers  = 8
	getBytes = 1 << 10
	// listBytes are written in pieces, as a list from memory is.
	listBytes, pieceBytes = 1 << 20, 256 << 10
	serverArgument        = "serve"
)

// servers are the two, by the library's name.
var servers = map[string]func(net.Listener) error{
	"fasthttp": serveFasthttp,
	"net/http": serveNetHTTP,
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == serverArgument {
		if err := serve(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "parsers:", err)
			os.Exit(1)
		}
		return
	}
	rig.Main("parsers", run)
}

// serve is the main function of a server's process: it prints its address, and ends with stdin.
func serve(library string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return servers[library](ln)
}

var (
	small = bytes.Repeat([]byte("a"), getBytes)
	piece = bytes.Repeat([]byte("a"), pieceBytes)
)

func serveFasthttp(ln net.Listener) error {
	server := fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set("Content-Type", "application/json")
		if string(ctx.Path()) == "/list" {
			ctx.Response.SetBodyStream(list{}, listBytes)
			return
		}
		ctx.Response.SetBody(small)
	}}
	return server.Serve(ln)
}

// list is the body of a LIST.
type list struct{}

// Read is never called: SupportsBodyWriteTo says so.
func (list) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// SupportsBodyWriteTo implements fasthttp.BodyWriterTo.
func (list) SupportsBodyWriteTo() bool { return true }

// WriteTo implements io.WriterTo.
func (list) WriteTo(w io.Writer) (n int64, err error) {
	for n < listBytes && err == nil {
		var written int
		written, err = w.Write(piece)
		n += int64(written)
	}
	return n, err
}

func serveNetHTTP(ln net.Listener) error {
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/list" {
				w.Header().Set("Content-Length", fmt.Sprint(listBytes))
				_, _ = list{}.WriteTo(w) // it fails if the client has left
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(small)))
			_, _ = w.Write(small)
		})}
	return server.Serve(ln)
}

// process is a server that runs.
type process struct {
	cmd     *exec.Cmd
	address string
	stop    func()
}

func start(library string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, serverArgument, library) // #nosec G204 -- this program
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := rig.Start(cmd); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	return &process{cmd: cmd, address: strings.TrimSpace(line), stop: func() { _, _ = stdin.Close(), cmd.Wait() }}, err
}

// costs are what one server costs: CPU for a request of each kind, and kB of a connection.
type costs struct{ get, list, connection, rests []float64 }

func run(ctx context.Context, r *rig.Report) error {
	all := map[string]*costs{"fasthttp": {}, "net/http": {}}
	for range *rounds {
		for library, c := range all {
			p, err := start(library)
			if err != nil {
				return err
			}
			err = c.measure(ctx, p)
			p.stop()
			if err != nil {
				return fmt.Errorf("%s: %w", library, err)
			}
		}
	}
	fast, std := all["fasthttp"], all["net/http"]
	for _, figure := range []struct {
		name, unit string
		fast, std  []float64
	}{
		{"CPU of a small GET", "µs", fast.get, std.get},
		{"CPU of a LIST of 1 MiB", "µs", fast.list, std.list},
		{"CPU of a connection with one GET", "µs", fast.connection, std.connection},
		{"resident memory of a connection that rests", "kB", fast.rests, std.rests},
	} {
		f, s := median(figure.fast), median(figure.std)
		r.Check(f < s, figure.name, "fasthttp %.1f %s, net/http %.1f %s: %.2f", f, figure.unit, s, figure.unit, f/s)
	}
	return nil
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func (c *costs) measure(ctx context.Context, p *process) error {
	for _, kind := range []struct {
		to     *[]float64
		target string
		fresh  bool
	}{{&c.get, "/get", false}, {&c.list, "/list", false}, {&c.connection, "/get", true}} {
		cost, err := p.cost(ctx, kind.target, kind.fresh)
		if err != nil {
			return err
		}
		*kind.to = append(*kind.to, cost)
	}
	bytes, err := p.rest(ctx)
	c.rests = append(c.rests, bytes)
	return err
}

// cost is the CPU of one request, in microseconds.
func (p *process) cost(ctx context.Context, target string, fresh bool) (float64, error) {
	before, err := rig.CPUOf(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, *window)
	defer cancel()
	var players sync.WaitGroup
	var mu sync.Mutex
	var requests int
	var failure error
	for range workers {
		players.Go(func() {
			n, err := p.ask(ctx, target, fresh)
			mu.Lock()
			defer mu.Unlock()
			requests += n
			failure = errors.Join(failure, err)
		})
	}
	players.Wait()
	after, err := rig.CPUOf(p.cmd.Process.Pid)
	if requests == 0 {
		return 0, errors.Join(errors.New("no request was answered"), failure, err)
	}
	return float64((after - before).Nanoseconds()) / 1e3 / float64(requests), errors.Join(failure, err)
}

// ask asks until ctx ends.
func (p *process) ask(ctx context.Context, target string, fresh bool) (n int, err error) {
	transport := &http.Transport{DisableKeepAlives: fresh}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		r, err := http.NewRequest(http.MethodGet, "http://"+p.address+target, http.NoBody)
		if err != nil {
			return n, err
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			return n, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// rest is what a connection takes that had one GET, in kB of resident memory.
func (p *process) rest(ctx context.Context) (float64, error) {
	before, err := rig.ResidentOf(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	for range *resting {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /get HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return 0, err
		}
		if _, err := c.Read(make([]byte, 4<<10)); err != nil {
			return 0, err
		}
	}
	after, err := rig.ResidentOf(p.cmd.Process.Pid)
	return float64(after-before) / 1e3 / float64(*resting), err
}
