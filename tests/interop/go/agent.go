package main

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"
	"google.golang.org/grpc"
)

const result a2a.ArtifactID = "result"

var skills = []string{
	"echo", "name", "greet", "count", "trip", "slow", "file", "data", "fail", "refuse", "picky",
	"halves", "let-go",
}

// desk does what a data part names as `do`, or the first word of the text; else it echoes loudly.
type desk struct {
	mu      sync.Mutex
	answers map[a2a.TaskID][]string
	gate    chan struct{}
}

// emit sends an event; it panics with errStopped when nobody reads any more.
type emit func(a2a.Event)

type stopped struct{}

func (d *desk) Execute(ctx context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		defer func() {
			if found := recover(); found != nil && found != (stopped{}) {
				panic(found)
			}
		}()
		send := func(event a2a.Event) {
			if !yield(event, nil) {
				panic(stopped{})
			}
		}
		command, text := asked(in.Message)
		if in.StoredTask != nil {
			d.answer(in, text, send)
			return
		}
		switch command {
		case "greet":
			send(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("hello yourself")))
		case "picky":
			yield(nil, a2a.NewError(a2a.ErrUnsupportedContentType, "No pictures, please"))
		default:
			send(a2a.NewSubmittedTask(in, in.Message))
			send(a2a.NewStatusUpdateEvent(in, a2a.TaskStateWorking, nil))
			d.work(ctx, in, command, text, send)
		}
	}
}

// asked returns the command of a message and the text that belongs to it.
func asked(message *a2a.Message) (command, text string) {
	text = textOf(message.Parts)
	for _, part := range message.Parts {
		if named, ok := part.Data().(map[string]any); ok {
			if do, ok := named["do"].(string); ok {
				return do, text
			}
		}
	}
	command, rest, _ := strings.Cut(text, " ")
	if slices.Contains([]string{"ask", "count", "parts", "slow"}, command) {
		return command, rest
	}
	return "echo", text
}

func (d *desk) work(ctx context.Context, in *a2asrv.ExecutorContext, command, text string, send emit) {
	says := func(state a2a.TaskState, words string) *a2a.TaskStatusUpdateEvent {
		message := a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart(words))
		return a2a.NewStatusUpdateEvent(in, state, message)
	}
	switch command {
	case "ask", "trip":
		d.mu.Lock()
		d.answers[in.TaskID] = []string{command}
		d.mu.Unlock()
		send(says(a2a.TaskStateInputRequired, "Which city?"))
		return
	case "count":
		many, _ := strconv.Atoi(text)
		for number := range many {
			if number%7 == 3 {
				send(says(a2a.TaskStateWorking, fmt.Sprintf("at %d", number)))
			}
			if number%11 == 5 {
				facts := write(in, a2a.ArtifactID(fmt.Sprintf("facts-%d", number)), false,
					a2a.NewDataPart(map[string]any{"number": number}))
				send(facts)
			}
			piece := write(in, result, number > 0, a2a.NewTextPart(fmt.Sprintf("%d ", number)))
			piece.LastChunk = number == many-1
			send(piece)
			time.Sleep(10 * time.Millisecond) // its work
		}
	case "slow":
		send(says(a2a.TaskStateWorking, "begun"))
		select {
		case <-ctx.Done():
			return
		case <-time.After(60 * time.Second):
		}
	case "parts", "file", "data":
		send(write(in, result, false, turned(in.Message)...))
	case "fail":
		failed := says(a2a.TaskStateFailed, "No paper left")
		failed.Status.Message.SetMeta("reason", "paper")
		send(failed)
		return
	case "refuse":
		send(says(a2a.TaskStateRejected, "Not for me"))
		return
	case "halves":
		send(write(in, result, false, a2a.NewTextPart("first ")))
		send(says(a2a.TaskStateWorking, "half of it"))
		d.mu.Lock()
		gate := d.gate
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-gate:
		}
		send(write(in, result, true, a2a.NewTextPart("second")))
	case "let-go":
		d.mu.Lock()
		close(d.gate)
		d.gate = make(chan struct{})
		d.mu.Unlock()
		send(write(in, result, false, a2a.NewTextPart("gone")))
	case "name":
		skill, _ := in.Message.Metadata["skillId"].(string)
		send(write(in, result, false, a2a.NewTextPart(skill)))
	default:
		send(write(in, result, false, a2a.NewTextPart(strings.ToUpper(text))))
	}
	send(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil))
}

// answer goes on with a task that has asked: once for `ask`, twice for `trip`.
func (d *desk) answer(in *a2asrv.ExecutorContext, text string, send emit) {
	d.mu.Lock()
	d.answers[in.TaskID] = append(d.answers[in.TaskID], text)
	known := d.answers[in.TaskID]
	d.mu.Unlock()
	send(a2a.NewStatusUpdateEvent(in, a2a.TaskStateWorking, nil))
	words := "A trip to " + text
	if known[0] == "trip" {
		if len(known) == 2 {
			question := a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart("How many days?"))
			send(a2a.NewStatusUpdateEvent(in, a2a.TaskStateInputRequired, question))
			return
		}
		words = fmt.Sprintf("%s days in %s", known[2], known[1])
	}
	send(write(in, result, false, a2a.NewTextPart(words)))
	send(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil))
}

func (d *desk) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}

func write(
	in *a2asrv.ExecutorContext, id a2a.ArtifactID, more bool, parts ...*a2a.Part,
) *a2a.TaskArtifactUpdateEvent {
	event := a2a.NewArtifactUpdateEvent(in, id, parts...)
	event.Append = more
	return event
}

// turned gives every file back with its bytes reversed, and all data but the command.
func turned(message *a2a.Message) []*a2a.Part {
	var made []*a2a.Part
	for _, part := range message.Parts {
		switch content := part.Content.(type) {
		case a2a.Raw:
			back := slices.Clone([]byte(content))
			slices.Reverse(back)
			file := a2a.NewRawPart(back)
			file.Filename, file.MediaType = "back.bin", "application/x-back"
			made = append(made, file)
		case a2a.Data:
			named, _ := content.Value.(map[string]any)
			if _, command := named["do"]; !command {
				made = append(made, a2a.NewDataPart(map[string]any{"got": content.Value}))
			}
		}
	}
	return made
}

// serve has one agent in JSON-RPC, REST and gRPC, of 1.0 and of 0.3, with webhooks.
func serve(ports []string) error {
	rpc, rest, remote := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	face := func(url string, binding a2a.TransportProtocol, version a2a.ProtocolVersion) *a2a.AgentInterface {
		return &a2a.AgentInterface{URL: url, ProtocolBinding: binding, ProtocolVersion: version}
	}
	modes := []string{"text/plain", "application/json", "application/octet-stream"}
	card := &a2a.AgentCard{
		Name:        "Desk on a2a-go 2.4.0",
		Description: "Echoes, and a little more.",
		Version:     "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{
			face("http://"+rpc+"/", a2a.TransportProtocolJSONRPC, a2a.Version),
			face("http://"+rest, a2a.TransportProtocolHTTPJSON, a2a.Version),
			face(remote, a2a.TransportProtocolGRPC, a2a.Version),
			face("http://"+rpc+"/v0", a2a.TransportProtocolJSONRPC, a2av0.Version),
			face("http://"+rest, a2a.TransportProtocolHTTPJSON, a2av0.Version),
			face(remote, a2a.TransportProtocolGRPC, a2av0.Version),
		},
		Capabilities:       a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes:  modes,
		DefaultOutputModes: modes,
	}
	for _, name := range skills {
		skill := a2a.AgentSkill{ID: name, Name: name, Description: "Does it.", Tags: []string{"a"}}
		card.Skills = append(card.Skills, skill)
	}
	own := &desk{answers: map[a2a.TaskID][]string{}, gate: make(chan struct{})}
	sender := push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})
	handler := a2asrv.NewHandler(
		own,
		a2asrv.WithTaskStore(taskstore.NewInMemory(&taskstore.InMemoryStoreConfig{
			// Whoever lists tasks must have a name; here all have the same.
			Authenticator: func(context.Context) (string, error) { return "anybody", nil },
		})),
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), sender),
		a2asrv.WithCapabilityChecks(&card.Capabilities),
	)
	cards := a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card))

	rpcs := http.NewServeMux()
	rpcs.Handle(a2asrv.WellKnownAgentCardPath, cards)
	rpcs.Handle("/v0", a2av0.NewJSONRPCHandler(handler))
	rpcs.Handle("/", a2asrv.NewJSONRPCHandler(handler))
	rests := http.NewServeMux()
	rests.Handle(a2asrv.WellKnownAgentCardPath, cards)
	rests.Handle("/v1/", a2av0.NewRESTHandler(handler))
	rests.Handle("/", a2asrv.NewRESTHandler(handler))

	calls := grpc.NewServer()
	grpcv1.NewHandler(handler).RegisterWith(calls)
	grpcv0.NewHandler(handler).RegisterWith(calls)
	listener, err := net.Listen("tcp", remote)
	if err != nil {
		return err
	}
	ended := make(chan error, 3)
	go func() { ended <- calls.Serve(listener) }()
	go func() { ended <- http.ListenAndServe(rpc, rpcs) }()
	go func() { ended <- http.ListenAndServe(rest, rests) }()
	return <-ended
}
