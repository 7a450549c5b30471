package packets

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestPacketsComeAsTheyWere(t *testing.T) {
	var stream bytes.Buffer
	sent := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("x"), 1000)}
	for _, p := range sent {
		if err := Write(&stream, p); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(stream.Bytes())
	for _, p := range sent {
		if got, err := Read(&stream, 1000); err != nil || !bytes.Equal(got, p) {
			t.Errorf("%q, %v: want %q", got, err, p)
		}
	}
	if _, err := Read(&stream, 1000); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, err := Read(bytes.NewReader(whole[:5]), 1000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a packet: %v", err)
	}
	if _, err := Read(bytes.NewReader([]byte{255, 255, 255, 255, 1}), 1000); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large packet: %v", err)
	}
}

// FuzzRead: whatever is sent, no packet is larger than the reader allows.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 16
		for stream := bytes.NewReader(data); ; {
			packet, err := Read(stream, most)
			if err != nil {
				return
			}
			if len(packet) > most {
				t.Errorf("%d bytes", len(packet))
			}
		}
	})
}
