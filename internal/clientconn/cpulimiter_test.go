package clientconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// connected is both ends of a TCP connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	return near, far
}

// An answer whose client does not read has no permit. It goes on when the client reads and it has a
// permit again, and releases that at its end.
func TestPermitIsReleasedWhileWaiting(t *testing.T) {
	near, far := connected(t)
	tuneTCP(near)
	c := &PacedConn{Conn: near, permit: cpuPermit{limiter: NewCPULimiter(1)}}
	if err := c.SetPace(time.Minute, 1); err != nil {
		t.Fatal(err)
	}
	if len(c.permit.limiter.permits) != 1 {
		t.Fatal("a large answer has no permit")
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(text)
		if err == nil && len(c.permit.limiter.permits) != 1 {
			err = errors.New("after the write it has no permit")
		}
		wrote <- errors.Join(err, c.SetPace(time.Minute, 0))
	}()
	eventually(t, "the permit to be released", func() bool { return len(c.permit.limiter.permits) == 0 })

	c.permit.limiter.Acquire() // ours now
	read := make(chan []byte, 1)
	go func() {
		all := make([]byte, len(text))
		n, _ := io.ReadFull(far, all)
		read <- all[:n]
	}()
	select {
	case <-wrote:
		t.Fatal("it went on without a permit")
	case <-time.After(50 * time.Millisecond):
	}
	c.permit.limiter.Release()
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if got := <-read; !bytes.Equal(got, text) {
		t.Errorf("%d bytes arrived of %d, or others", len(got), len(text))
	}
	if len(c.permit.limiter.permits) != 0 {
		t.Error("the permit was not released")
	}
}

// However an answer ends, it releases its permit.
func TestPermitOfABrokenAnswer(t *testing.T) {
	for name, end := range map[string]func(c *PacedConn, far net.Conn){
		"the client left": func(_ *PacedConn, far net.Conn) { far.Close() },
		"it was cut":      func(c *PacedConn, _ net.Conn) { c.Cut() },
		"it stalled":      func(*PacedConn, net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := connected(t)
			tuneTCP(near)
			c := &PacedConn{Conn: near, permit: cpuPermit{limiter: NewCPULimiter(1)}}
			done := make(chan error, 1)
			go func() { // as the body of an answer is written
				const stall = 200 * time.Millisecond
				err := c.SetPace(stall, 1)
				if err == nil {
					_, err = endlessBody{}.WriteTo(c)
				}
				done <- errors.Join(err, c.SetPace(stall, 0))
			}()
			if _, err := io.ReadFull(far, make([]byte, 1)); err != nil { // so it was taken
				t.Fatal(err)
			}
			eventually(t, "it waits for its client", func() bool { return len(c.permit.limiter.permits) == 0 })
			end(c, far)
			if err := <-done; err == nil {
				t.Error("an endless answer has ended well")
			}
			if len(c.permit.limiter.permits) != 0 {
				t.Error("the permit was not released")
			}
		})
	}
}

// endlessBody is a body without an end.
type endlessBody struct{}

func (endlessBody) WriteTo(w io.Writer) (written int64, err error) {
	piece := make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = w.Write(piece)
		written += int64(n)
	}
	return written, err
}

// A client is not evicted for the time in which its answer waits for a permit.
func TestWaitForAPermitIsNotTheClientsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(t)
		go drip(far, 32<<10, time.Second/4) // twice as fast as it must
		c := &PacedConn{Conn: near, permit: cpuPermit{limiter: NewCPULimiter(1)}}
		if err := c.SetPace(10*time.Second, 1); err != nil {
			t.Fatal(err)
		}
		rival, over := make(chan struct{}), make(chan struct{})
		go func() { // has the permit for a second whenever it is free
			defer close(over)
			for {
				select {
				case c.permit.limiter.permits <- struct{}{}:
					time.Sleep(time.Second)
					c.permit.limiter.Release()
				case <-rival:
					return
				}
			}
		}()
		began := time.Now()
		for range 100 {
			if _, err := c.Write(make([]byte, 16<<10)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("the rival was no rival: %v", took)
		}
		close(rival)
		if err := c.SetPace(0, 0); err != nil {
			t.Error(err)
		}
		<-over
	})
}

// TestAnswersWithAPermitYieldToWriters shows that an answer with a permit yields to writers where
// no processor would be left for them, but not forever.
func TestAnswersWithAPermitYieldToWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := NewCPULimiter(2)
		took := func() time.Duration {
			waited := two.Acquire()
			two.Release()
			return waited
		}
		if took() != 0 {
			t.Error("it waited, although no writer delivers")
		}
		two.BeginDelivering()
		if got := took(); got != yieldTimeout {
			t.Errorf("it waited %v for a writer that is never done, want %v", got, yieldTimeout)
		}
		go func() {
			time.Sleep(yieldTimeout / 2)
			two.EndDelivering()
		}()
		if got := took(); got != yieldTimeout/2 {
			t.Errorf("it waited %v for a writer that was done after %v", got, yieldTimeout/2)
		}
		two.processors = 3
		two.BeginDelivering()
		if took() != 0 {
			t.Error("there was a processor left")
		}
	})
}

// TestReleaseEndsYielding shows that an answer yields no longer once another one has released the
// processor that a writer needs.
func TestReleaseEndsYielding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := NewCPULimiter(3)
		three.Acquire()
		three.BeginDelivering()
		go func() {
			time.Sleep(yieldTimeout / 2)
			three.Release()
		}()
		if got := three.Acquire(); got != yieldTimeout/2 {
			t.Errorf("it waited %v for a permit that was released after %v", got, yieldTimeout/2)
		}
	})
}

func TestNilCPULimiterLimitsNothing(t *testing.T) {
	var none *CPULimiter
	none.BeginDelivering()
	if waited := none.Acquire(); waited != 0 || none.InUse() != 0 {
		t.Errorf("waited %v, %d permits are in use", waited, none.InUse())
	}
	none.Release()
	none.EndDelivering()
}
