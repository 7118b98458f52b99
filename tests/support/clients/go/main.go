// Members of groups in Go: `member sarama|franz BOOTSTRAP`. ../README.md has the protocol.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sort"
	"sync"
)

type part struct {
	topic     string
	partition int32
}

func (p part) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.partition}) }

type command struct {
	Do         string   `json:"do"`
	Group      string   `json:"group"`
	Topics     []string `json:"topics"`
	Pattern    string   `json:"pattern"`
	Instance   string   `json:"instance"`
	Strategy   string   `json:"strategy"`
	SessionMs  int      `json:"session_ms"`
	Reset      string   `json:"reset"`
	Offsets    [][]any  `json:"offsets"`
	Partitions [][]any  `json:"partitions"`
	What       string   `json:"what"`
}

type offset struct {
	part
	offset   int64
	metadata string
}

func (o offset) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{o.topic, o.partition, o.offset, o.metadata})
}

var out sync.Mutex

func say(event string, facts map[string]any) {
	if facts == nil {
		facts = map[string]any{}
	}
	facts["event"] = event
	line, _ := json.Marshal(facts)
	out.Lock()
	defer out.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// owned: what is read, and from where each continues.
type owned struct {
	sync.Mutex
	positions map[part]int64
	read      map[part]bool
}

func (o *owned) list() []part {
	all := []part{}
	for p := range o.read {
		all = append(all, p)
	}
	return inOrder(all)
}

func inOrder(all []part) []part {
	sort.Slice(all, func(i, j int) bool {
		return all[i].topic < all[j].topic || all[i].topic == all[j].topic && all[i].partition < all[j].partition
	})
	return all
}

func (o *owned) assigned(fresh []part, memberID string, generation int32) {
	o.Lock()
	defer o.Unlock()
	for _, p := range fresh {
		o.read[p] = true
	}
	say("assigned", map[string]any{
		"new": inOrder(fresh), "owned": o.list(), "member": memberID, "generation": generation,
	})
}

func (o *owned) gone(event string, gone []part) {
	o.Lock()
	defer o.Unlock()
	for _, p := range gone {
		delete(o.read, p)
		delete(o.positions, p)
	}
	say(event, map[string]any{"gone": inOrder(gone), "owned": o.list()})
}

func (o *owned) record(topic string, partition int32, at int64, value []byte) {
	o.Lock()
	defer o.Unlock()
	if o.read[part{topic, partition}] { // else it was given away meanwhile
		o.positions[part{topic, partition}] = at + 1
	}
	say("record", map[string]any{"topic": topic, "partition": partition, "offset": at, "value": string(value)})
}

func (o *owned) toCommit(c command) []offset {
	o.Lock()
	defer o.Unlock()
	all := []offset{}
	if c.Offsets != nil {
		return offsetsOf(c)
	}
	for p, at := range o.positions {
		all = append(all, offset{p, at, ""})
	}
	return all
}

func offsetsOf(c command) []offset {
	all := []offset{}
	for _, one := range c.Offsets {
		at := part{one[0].(string), int32(one[1].(float64))}
		all = append(all, offset{at, int64(one[2].(float64)), one[3].(string)})
	}
	return all
}

func partitionsOf(c command) []part {
	all := []part{}
	for _, one := range c.Partitions {
		all = append(all, part{one[0].(string), int32(one[1].(float64))})
	}
	return all
}

func text(err error) any {
	if err == nil {
		return nil
	}
	return err.Error()
}

// member is what a library must do.
type member interface {
	subscribe(c command)
	commit(c command)
	committed(c command)
	admin(c command)
	close()
}

func main() {
	own := &owned{positions: map[part]int64{}, read: map[part]bool{}}
	var m member
	if os.Args[1] == "sarama" {
		m = newSarama(os.Args[2], own)
	} else {
		m = newFranz(os.Args[2], own)
	}
	say("ready", nil)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			say("error", map[string]any{"error": err.Error()})
			continue
		}
		if c.SessionMs == 0 {
			c.SessionMs = 6000
		}
		switch c.Do {
		case "subscribe":
			m.subscribe(c)
		case "commit":
			m.commit(c)
		case "committed":
			m.committed(c)
		case "admin":
			m.admin(c)
		case "close":
			m.close()
			say("closed", nil)
			return
		}
	}
	m.close()
}
