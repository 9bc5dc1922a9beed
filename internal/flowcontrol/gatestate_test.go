package flowcontrol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// reference is the specification of a gateState: each decision visits every flow.
type reference struct {
	line  *gateState // its bounds
	flows map[Flow]*referenceFlow
	stamp int
}

type referenceFlow struct {
	held    int64
	waiting []*waiter
	turn    int
}

func (r *reference) flow(key Flow) *referenceFlow {
	if r.flows[key] == nil {
		r.flows[key] = &referenceFlow{}
	}
	return r.flows[key]
}

func (r *reference) held() (sum int64) {
	for _, f := range r.flows {
		sum += f.held
	}
	return sum
}

func (r *reference) waiting() (sum int) {
	for _, f := range r.flows {
		sum += len(f.waiting)
	}
	return sum
}

// next is the flow whose turn it is; nil if no request could be admitted whatever room there is.
func (r *reference) next() *referenceFlow {
	var best *referenceFlow
	for _, f := range r.flows {
		if len(f.waiting) == 0 || f.held+f.waiting[0].width > r.line.share {
			continue
		}
		if best == nil || f.held < best.held || f.held == best.held && f.turn < best.turn {
			best = f
		}
	}
	return best
}

// advance is the requests that are admitted now.
func (r *reference) advance() (in []*waiter) {
	for f := r.next(); f != nil && r.held()+f.waiting[0].width <= r.line.limit; f = r.next() {
		in = append(in, f.waiting[0])
		f.held += f.waiting[0].width
		f.waiting = f.waiting[1:]
		r.stamp++
		f.turn = r.stamp
	}
	return in
}

// modelPlayer makes moves on a gateState and on the reference, and fails when they differ or when
// an invariant does not hold.
type modelPlayer struct {
	t    testing.TB
	line *gateState
	ref  *reference

	inside  []Permit  // admitted, to be released
	waiters []*waiter // in line
}

func newPlayer(t testing.TB, limit, share int64, most, each int) *modelPlayer {
	l := newGateState(Options{Limit: limit, Share: share, Waiting: most, WaitingEach: each})
	return &modelPlayer{t: t, line: l, ref: &reference{line: l, flows: map[Flow]*referenceFlow{}}}
}

func key(n int) Flow { return UserFlow(fmt.Sprint("user-", n)) }

// ask asks for width, waits if it cannot be had at once, and reports whether it is inside and
// whether it waits.
func (p *modelPlayer) ask(k Flow, width int64) (inside, waits bool) {
	p.t.Helper()
	width = p.line.width(width)
	f := p.ref.flow(k)
	next := p.ref.next()
	free := (next == nil || f.held < next.held) && len(f.waiting) == 0 && f.held+width <= p.line.share && p.ref.held()+
		width <= p.line.limit
	got, ok := p.line.take(k, width)
	if ok != free {
		p.t.Fatalf("%v asks for %d: admitted %v, want %v", k, width, ok, free)
	}
	if ok {
		f.held += width
		p.inside = append(p.inside, Permit{flow: got, width: width})
		p.check()
		return true, false
	}
	out := p.victim(f)
	w := p.line.join(k, width)
	place := len(f.waiting) < p.line.maxFlowWaiting && p.line.maxWaiting > 0 &&
		(p.ref.waiting() < p.line.maxWaiting || out != nil)
	if (w != nil) != place {
		p.t.Fatalf("%v asks for %d: waits %v, want %v", k, width, w != nil, place)
	}
	if w == nil {
		p.check()
		return false, false
	}
	if p.ref.waiting() == p.line.maxWaiting {
		p.displaced(out)
	}
	f.waiting = append(f.waiting, w)
	if len(f.waiting) == 1 {
		p.ref.stamp++
		f.turn = p.ref.stamp
	}
	p.waiters = append(p.waiters, w)
	p.check()
	return false, true
}

// victim is the length of the queue whose last request a request of f displaces; nil if it
// displaces none.
func (p *modelPlayer) victim(f *referenceFlow) *int {
	longest := 0
	for _, g := range p.ref.flows {
		longest = max(longest, len(g.waiting))
	}
	if longest < len(f.waiting)+2 {
		return nil
	}
	return &longest
}

// displaced checks that the last request of one of the longest queues was displaced, and no other.
func (p *modelPlayer) displaced(longest *int) {
	p.t.Helper()
	gone := slices.IndexFunc(p.waiters, func(w *waiter) bool { return w.verdict == displaced })
	if gone < 0 {
		p.t.Fatal("a full line has taken one more, and none has left")
	}
	out := p.waiters[gone]
	p.waiters = slices.Delete(p.waiters, gone, gone+1)
	for _, f := range p.ref.flows {
		if i := slices.Index(f.waiting, out); i >= 0 {
			if len(f.waiting) != *longest || i != len(f.waiting)-1 {
				p.t.Fatalf("displaced number %d of %d, want the last of %d", i, len(f.waiting), *longest)
			}
			f.waiting = f.waiting[:i]
		}
	}
	if slices.ContainsFunc(p.waiters, func(w *waiter) bool { return w.verdict == displaced }) {
		p.t.Fatal("more than one has gone")
	}
}

// release releases number i of the admitted requests, and returns those that are admitted for it.
func (p *modelPlayer) release(i int) []*waiter {
	p.t.Helper()
	pass := p.inside[i]
	p.inside = slices.Delete(p.inside, i, i+1)
	p.ref.flows[pass.flow.key].held -= pass.width
	p.line.release(pass.flow, pass.width)
	return p.letIn()
}

// leave removes number i of the requests that wait.
func (p *modelPlayer) leave(i int) []*waiter {
	p.t.Helper()
	w := p.waiters[i]
	p.waiters = slices.Delete(p.waiters, i, i+1)
	f := p.ref.flows[w.flow.key]
	j := slices.Index(f.waiting, w)
	f.waiting = slices.Delete(slices.Clone(f.waiting), j, j+1)
	p.line.leave(w)
	return p.letIn()
}

// letIn checks that the gateState admitted the requests that the reference admits.
func (p *modelPlayer) letIn() []*waiter {
	p.t.Helper()
	in := p.ref.advance()
	for _, w := range in {
		if w.verdict != admitted {
			p.t.Fatalf("%v, width %d, is to be admitted, and waits", w.flow.key, w.width)
		}
		p.inside = append(p.inside, Permit{flow: w.flow, width: w.width})
		p.waiters = slices.DeleteFunc(p.waiters, func(v *waiter) bool { return v == w })
	}
	p.check()
	return in
}

// check checks what holds between any two moves.
func (p *modelPlayer) check() {
	p.t.Helper()
	l := p.line
	held := map[Flow]int64{}
	sum := int64(0)
	for _, pass := range p.inside {
		held[pass.flow.key] += pass.width
		sum += pass.width
	}
	if sum > l.limit || sum != l.held {
		p.t.Fatalf("%d are held and %d accounted for, of %d", sum, l.held, l.limit)
	}
	waiting := map[Flow]int{}
	for _, w := range p.waiters {
		waiting[w.flow.key]++
		if w.verdict != undecided {
			p.t.Fatalf("%v waits, and has the verdict %d", w.flow.key, w.verdict)
		}
	}
	if len(p.waiters) > l.maxWaiting || len(p.waiters) != l.waiting {
		p.t.Fatalf("%d wait and %d are accounted for, of %d", len(p.waiters), l.waiting, l.maxWaiting)
	}
	for k, f := range l.flows {
		if f.held != held[k] || f.held > l.share || f.waits() != waiting[k] || f.waits() > l.maxFlowWaiting {
			p.t.Fatalf("%v: holds %d and %d are accounted for, %d and %d wait", k, held[k], f.held, waiting[k], f.waits())
		}
		if f.held == 0 && f.waits() == 0 {
			p.t.Fatalf("%v neither holds nor waits, and is remembered", k)
		}
		delete(held, k)
		delete(waiting, k)
	}
	if len(held)+len(waiting) > 0 {
		p.t.Fatalf("forgotten: %v %v", held, waiting)
	}
	if next := p.ref.next(); next != nil && sum+next.waiting[0].width <= l.limit {
		p.t.Fatal("there is room for whose turn it is")
	}
}

// play makes a move for each two bytes, and releases everything in the end.
func (p *modelPlayer) play(moves []byte, flows int) {
	p.t.Helper()
	for len(moves) >= 2 {
		what, which := moves[0], int(moves[1])
		moves = moves[2:]
		switch n := len(p.inside); {
		case what < 128:
			p.ask(key(which%flows), int64(what%16)+1)
		case what < 224 && n > 0:
			p.release(which % n)
		case len(p.waiters) > 0:
			p.leave(which % len(p.waiters))
		}
	}
	for len(p.waiters) > 0 || len(p.inside) > 0 {
		if len(p.inside) == 0 {
			p.t.Fatalf("none is admitted and %d wait", len(p.waiters))
		}
		p.release(0)
	}
	if n := len(p.line.flows); n > 0 || p.line.held != 0 || p.line.waiting != 0 {
		p.t.Fatalf("all have gone, and %d flows, %d held and %d waiting are left", n, p.line.held, p.line.waiting)
	}
}

// Whatever the order of things, the gateState does what the plainest one does, and its invariants
// hold.
func TestLineRandom(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + r.Int64N(40)
		p := newPlayer(t, limit, 1+r.Int64N(limit), r.IntN(20), r.IntN(12))
		moves := make([]byte, 2000)
		for i := range moves {
			moves[i] = byte(r.Uint32())
		}
		p.play(moves, 1+r.IntN(9))
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte{10, 10, 4, 4, 1, 0, 1, 1, 130, 0, 230, 0})
	f.Add([]byte{1, 1, 1, 1, 9, 0, 9, 0, 9, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 || len(data) > 4096 {
			t.Skip("four bytes configure the line, and longer games show nothing more")
		}
		limit := int64(data[0]%64) + 1
		p := newPlayer(t, limit, int64(data[1])%limit+1, int(data[2]%32), int(data[3]%16))
		p.play(data[4:], 7)
	})
}

// A flow with a thousand requests delays another by one turn at most.
func TestLineElephant(t *testing.T) {
	p := newPlayer(t, 4, 4, 2000, 2000)
	for range 1004 {
		p.ask(key(0), 1)
	}
	for mouse := 1; mouse <= 3; mouse++ {
		if inside, waits := p.ask(key(mouse), 1); inside || !waits {
			t.Fatalf("mouse %d: inside %v, waits %v", mouse, inside, waits)
		}
	}
	for mouse := 1; mouse <= 3; mouse++ {
		in := p.release(0)
		if len(in) != 1 || in[0].flow.key != key(mouse) {
			t.Fatalf("release %d admitted %v, want mouse %d", mouse, in, mouse)
		}
	}
	if in := p.release(0); len(in) != 1 || in[0].flow.key != key(0) {
		t.Fatalf("when no mouse waits it is the elephant's turn, not %v", in)
	}
}

// Flows that ask equally often hold equally much, also if the requests of one last ten times as
// long.
func TestLineLongRequests(t *testing.T) {
	p := newPlayer(t, 10, 10, 400, 200)
	for range 105 {
		p.ask(key(0), 1)
		p.ask(key(1), 1)
	}
	ages, total := map[Flow]int{}, map[Flow]int64{}
	for step := range 1000 {
		for k, f := range p.line.flows {
			if step > 100 { // they are all user-0's at first
				total[k] += f.held
			}
		}
		// One of the short ones goes with each step, one of the long ones with every tenth.
		for k, every := range map[Flow]int{key(0): 1, key(1): 10} {
			if ages[k]++; ages[k]%every != 0 {
				continue
			}
			if i := slices.IndexFunc(p.inside, func(pass Permit) bool { return pass.flow.key == k }); i >= 0 {
				p.release(i)
				p.ask(k, 1)
			}
		}
	}
	short, long := total[key(0)], total[key(1)]
	if short*10 < long*9 || long*10 < short*9 {
		t.Errorf("short requests held %d, long ones %d: want about as much", short, long)
	}
}

// A request as wide as the limit is admitted once all that were admitted before it are released,
// however many narrow ones arrive.
func TestLineWide(t *testing.T) {
	p := newPlayer(t, 10, 10, 100, 100)
	for range 10 {
		p.ask(key(0), 1)
	}
	p.ask(key(1), 1000) // counts as 10
	for i := range 10 {
		p.ask(key(2+i), 1)
	}
	for i := range 9 {
		if in := p.release(0); len(in) > 0 {
			t.Fatalf("release %d admitted %v before the wide one", i, in[0].flow.key)
		}
	}
	if in := p.release(0); len(in) != 1 || in[0].flow.key != key(1) || in[0].width != 10 {
		t.Fatalf("want the wide one, got %v", in)
	}
}

// A flow never gets more than its share, even if there is room for it; others get in meanwhile.
func TestLineShare(t *testing.T) {
	p := newPlayer(t, 10, 4, 100, 100)
	for i := range 6 {
		if inside, _ := p.ask(key(0), 1); inside != (i < 4) {
			t.Fatalf("request %d of one flow with a share of 4: admitted %v", i, inside)
		}
	}
	if inside, _ := p.ask(key(1), 3); !inside {
		t.Fatal("another flow has to wait although there is room")
	}
	if in := p.release(0); len(in) != 1 || in[0].flow.key != key(0) {
		t.Fatalf("want one more of the flow that released, got %v", in)
	}
}

// When the queue is full, a request of a flow with fewer takes the place of the last request of the
// flow with most.
func TestLineDisplaces(t *testing.T) {
	p := newPlayer(t, 1, 1, 5, 5)
	for range 6 {
		p.ask(key(0), 1)
	}
	if _, waits := p.ask(key(0), 1); waits {
		t.Fatal("more of one flow wait than may")
	}
	for i, want := range []bool{true, true, false} { // five and none, four and one, three and two
		if _, waits := p.ask(key(1), 1); waits != want {
			t.Fatalf("request %d of the other flow: waits %v, want %v", i, waits, want)
		}
	}
}

// A narrow gate admits a small part of the limit, or one wider request alone; requests that wait
// are admitted when it is wide again.
func TestNarrow(t *testing.T) {
	l := newGateState(Options{Limit: 160, Share: 160, Waiting: 10, WaitingEach: 10})
	l.narrow = true
	wide, ok := l.take(key(0), 100)
	if !ok {
		t.Fatal("the first is not admitted")
	}
	if _, ok := l.take(key(1), 1); ok {
		t.Fatal("another is admitted beside it")
	}
	l.release(wide, 100)
	for i := range 10 {
		if _, ok := l.take(key(i), 1); !ok {
			t.Fatalf("%d: a tenth is not admitted", i)
		}
	}
	if _, ok := l.take(key(11), 1); ok {
		t.Error("more than a part is admitted")
	}
	waiter := l.join(key(11), 100)
	l.narrow = false
	if l.advance(); waiter.verdict != admitted {
		t.Error("the request that waited is not admitted")
	}
}
