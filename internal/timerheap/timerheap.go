// Package timerheap orders elements by when they are due. The owner of a heap needs one timer, for
// the first element, in place of one for each.
package timerheap

import "container/heap"

// Node is embedded in the elements of a Heap. A zero Node is in no heap.
type Node struct{ number int } // in the heap, from 1 on; 0: in none

// InHeap reports whether the element is in a heap.
func (n *Node) InHeap() bool { return n.number > 0 }

func (n *Node) node() *Node { return n }

// Element is a pointer to a struct that embeds a Node. It is in one heap at most.
type Element[E any] interface {
	// DueBefore reports that the element is due before another one.
	DueBefore(other E) bool
	node() *Node
}

// Heap is a min-heap of elements. It has no lock.
type Heap[E Element[E]] []E

// First is the element that is due first; nil: the heap is empty.
func (h Heap[E]) First() (first E) {
	if len(h) > 0 {
		first = h[0]
	}
	return first
}

// Set adds an element, or moves it after its time has changed.
func (h *Heap[E]) Set(e E) {
	if n := e.node(); n.InHeap() {
		heap.Fix(h, n.number-1)
		return
	}
	heap.Push(h, e)
}

// Remove removes an element, if it is in the heap.
func (h *Heap[E]) Remove(e E) {
	if n := e.node(); n.InHeap() {
		heap.Remove(h, n.number-1)
	}
}

// Len implements heap.Interface.
func (h Heap[E]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h Heap[E]) Less(i, j int) bool { return h[i].DueBefore(h[j]) }

// Swap implements heap.Interface.
func (h Heap[E]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].node().number, h[j].node().number = i+1, j+1
}

// Push implements heap.Interface.
func (h *Heap[E]) Push(x any) {
	e := x.(E)
	*h = append(*h, e)
	e.node().number = len(*h)
}

// Pop implements heap.Interface.
func (h *Heap[E]) Pop() any {
	var none E
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = none, (*h)[:last]
	e.node().number = 0
	return e
}
