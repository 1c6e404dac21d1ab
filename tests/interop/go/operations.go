package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
)

const (
	patience        = 60 * time.Second
	hookToken       = "token-of-the-webhook"
	hookCredentials = "credentials-of-the-webhook"
	secretSkill     = "hidden"
)

// cannot is what the client itself has no way to ask, and how that was seen.
type cannot string

func (c cannot) Error() string { return string(c) }

// partly is what works but for a weakness of the client.
type partly string

func (p partly) Error() string { return string(p) }

// bearer puts the token into every call.
type bearer struct {
	a2aclient.PassthroughInterceptor
	token string
}

func (b bearer) Before(ctx context.Context, req *a2aclient.Request) (context.Context, any, error) {
	if b.token != "" {
		req.ServiceParams["Authorization"] = []string{"Bearer " + b.token}
	}
	return ctx, nil, nil
}

type notice struct {
	path, token, authorization string
	body                       map[string]json.RawMessage
}

// hooks is a webhook that listens on a loopback port.
type hooks struct {
	mu       sync.Mutex
	received []notice
	address  string
	paths    atomic.Int64
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	found := notice{path: r.URL.Path, token: r.Header.Get("X-A2A-Notification-Token"),
		authorization: r.Header.Get("Authorization")}
	_ = json.Unmarshal(raw, &found.body)
	h.mu.Lock()
	h.received = append(h.received, found)
	h.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// caller is one binding of one version, with the token and without.
type caller struct {
	client, stranger *a2aclient.Client
	card             *a2a.AgentCard
	hooks            *hooks

	url, binding, version string
}

func said(text, skill string) *a2a.SendMessageRequest {
	message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	if skill != "" {
		message.SetMeta("skillId", skill)
	}
	return &a2a.SendMessageRequest{Message: message}
}

func (c *caller) send(ctx context.Context, text, skill string) (*a2a.Task, error) {
	return taskOf(c.client.SendMessage(ctx, said(text, skill)))
}

// start begins a task that goes on after its stream was left.
func (c *caller) start(ctx context.Context, text string) (a2a.TaskID, error) {
	for event, err := range c.client.SendStreamingMessage(ctx, said(text, "slow")) {
		if err != nil {
			return "", err
		}
		return event.TaskInfo().TaskID, nil
	}
	return "", errors.New("an empty stream")
}

func (c *caller) hook(ctx context.Context, text string) (*a2a.PushConfig, error) {
	id, err := c.start(ctx, text)
	if err != nil {
		return nil, err
	}
	config := &a2a.PushConfig{
		TaskID: id,
		ID:     "h1",
		URL:    fmt.Sprintf("%s/%d", c.hooks.address, c.hooks.paths.Add(1)),
		Token:  hookToken,
		Auth:   &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: hookCredentials},
	}
	made, err := c.client.CreateTaskPushConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if made.TaskID != id || made.ID != "h1" || made.URL != config.URL {
		return nil, fmt.Errorf("made %+v of %+v", made, config)
	}
	return config, nil
}

func expect(found, wanted any) error {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		return fmt.Errorf("%v is not %v", found, wanted)
	}
	return nil
}

func (c *caller) opSend(ctx context.Context) error {
	task, err := c.send(ctx, "hello 你好", "")
	if err != nil {
		return err
	}
	if err := expect([]string{stateOf(task.Status.State), textOf(task.Artifacts[0].Parts)},
		[]string{"completed", "HELLO 你好"}); err != nil {
		return err
	}
	for _, each := range c.card.SupportedInterfaces {
		if c.version == "0.3" && string(each.ProtocolBinding) == c.binding {
			return nil
		}
	}
	if c.version == "0.3" {
		return partly("it skips an interface of 0.3 whose address is also the `url` of the card, so its " +
			"callers name it themselves")
	}
	if _, err := agentcard.NewResolver(nil).Resolve(ctx, c.url); err != nil {
		if !unreadable(err) {
			return err
		}
		return partly("it reads no card with `securityRequirements` as the `.proto` has them, so its " +
			"callers need a `CardParser` of their own")
	}
	return nil
}

// unreadable03 tells the error with details of 0.3, where the SDK expects those of 1.0.
func unreadable03(err error) bool {
	return strings.Contains(err.Error(), "error.data of type []*errordetails.Typed")
}

func unreadable(err error) bool {
	return strings.Contains(err.Error(), "a2a.SecuritySchemeScopes")
}

func (c *caller) opStream(ctx context.Context) error {
	var text strings.Builder
	var last a2a.TaskState
	count := 0
	for event, err := range c.client.SendStreamingMessage(ctx, said("one two three", "write")) {
		if err != nil {
			return err
		}
		if _, first := event.(*a2a.Task); first != (count == 0) {
			return fmt.Errorf("event %d is a %T", count, event)
		}
		switch event := event.(type) {
		case *a2a.TaskArtifactUpdateEvent:
			text.WriteString(textOf(event.Artifact.Parts))
		case *a2a.TaskStatusUpdateEvent:
			last = event.Status.State
		}
		count++
	}
	return expect([]string{text.String(), stateOf(last)}, []string{"one two three ", "completed"})
}

func (c *caller) opGet(ctx context.Context) error {
	sent, err := c.send(ctx, "again", "")
	if err != nil {
		return err
	}
	found, err := c.client.GetTask(ctx, &a2a.GetTaskRequest{ID: sent.ID})
	if err != nil {
		return err
	}
	return expect([]any{found.ID, found.ContextID, textOf(found.Artifacts[0].Parts)},
		[]any{sent.ID, sent.ContextID, "AGAIN"})
}

func (c *caller) opList(ctx context.Context) error {
	sent, err := c.send(ctx, "listed", "")
	if err != nil {
		return err
	}
	before := requests.Load()
	page, err := c.client.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: sent.ContextID, PageSize: 10})
	if err != nil {
		if c.version == "0.3" && c.binding == "JSONRPC" && requests.Load() == before {
			return cannot("the client refuses by itself and sends nothing")
		}
		if c.version == "0.3" && c.binding == "HTTP+JSON" && strings.Contains(err.Error(), "unexpected token [") {
			return cannot("the client sends the request and does not read the array of 0.3 §3.5.3")
		}
		return err
	}
	var ids []a2a.TaskID
	for _, task := range page.Tasks {
		ids = append(ids, task.ID)
	}
	return expect(ids, []a2a.TaskID{sent.ID})
}

func (c *caller) opCancel(ctx context.Context) error {
	id, err := c.start(ctx, "300")
	if err != nil {
		return err
	}
	gone, err := c.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id})
	if err != nil {
		return err
	}
	return expect([]any{gone.ID, stateOf(gone.Status.State)}, []any{id, "canceled"})
}

func (c *caller) opResubscribe(ctx context.Context) error {
	id, err := c.start(ctx, "10")
	if err != nil {
		return err
	}
	count := 0
	var last a2a.TaskState
	for event, err := range c.client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: id}) {
		if err != nil {
			return err
		}
		if status, ok := event.(*a2a.TaskStatusUpdateEvent); ok {
			last = status.Status.State
		}
		count++
	}
	if count <= 5 {
		return fmt.Errorf("only %d events", count)
	}
	return expect(stateOf(last), "completed")
}

func (c *caller) opPushSet(ctx context.Context) error {
	_, err := c.hook(ctx, "3")
	return err
}

func (c *caller) opPushGet(ctx context.Context) error {
	config, err := c.hook(ctx, "3")
	if err != nil {
		return err
	}
	found, err := c.client.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: config.TaskID, ID: "h1"})
	if err != nil {
		return err
	}
	if found.Auth != nil && found.Auth.Credentials == hookCredentials {
		return errors.New("a secret came back")
	}
	return expect([]any{found.TaskID, found.ID, found.URL}, []any{config.TaskID, "h1", config.URL})
}

func (c *caller) opPushList(ctx context.Context) error {
	config, err := c.hook(ctx, "3")
	if err != nil {
		return err
	}
	found, err := c.client.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: config.TaskID})
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%d configs", len(found))
	}
	return expect([]string{found[0].ID, found[0].URL}, []string{"h1", config.URL})
}

func (c *caller) opPushDelete(ctx context.Context) error {
	config, err := c.hook(ctx, "3")
	if err != nil {
		return err
	}
	which := &a2a.DeleteTaskPushConfigRequest{TaskID: config.TaskID, ID: "h1"}
	if err := c.client.DeleteTaskPushConfig(ctx, which); err != nil {
		return err
	}
	found, err := c.client.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: config.TaskID, ID: "h1"})
	if err == nil {
		return fmt.Errorf("still there: %+v", found)
	}
	return nil
}

func (c *caller) opWebhook(ctx context.Context) error {
	config, err := c.hook(ctx, "5")
	if err != nil {
		return err
	}
	done := `"TASK_STATE_COMPLETED"`
	if c.version == "0.3" {
		done = `"completed"`
	}
	for {
		c.hooks.mu.Lock()
		received := slices.Clone(c.hooks.received)
		c.hooks.mu.Unlock()
		complete := false
		for _, each := range received {
			if !strings.HasSuffix(config.URL, each.path) {
				continue
			}
			if each.token != hookToken || each.authorization != "Bearer "+hookCredentials {
				return fmt.Errorf("%+v has no proof", each)
			}
			body, _ := json.Marshal(each.body)
			if !strings.Contains(string(body), string(config.TaskID)) {
				return fmt.Errorf("%s is of another task", body)
			}
			complete = complete || strings.Contains(string(body), done)
		}
		if complete {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the webhook was not called: %+v", received)
		case <-time.After(50 * time.Millisecond): // and looks again
		}
	}
}

func (c *caller) opUnknownTask(ctx context.Context) error {
	id := a2a.NewTaskID()
	again := said("hello", "")
	again.Message.TaskID = id
	_, got := c.client.GetTask(ctx, &a2a.GetTaskRequest{ID: id})
	_, canceled := c.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id})
	_, sent := c.client.SendMessage(ctx, again)
	var watched error
	for _, err := range c.client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: id}) {
		watched = err
	}
	weak := error(nil)
	for name, err := range map[string]error{"get": got, "cancel": canceled, "send": sent, "subscribe": watched} {
		if err != nil && unreadable03(err) {
			weak = partly("errors have no class: its reader of 0.3 expects the details of 1.0")
		} else if !errors.Is(err, a2a.ErrTaskNotFound) {
			return fmt.Errorf("%s: %v", name, err)
		}
	}
	return weak
}

func (c *caller) opExtendedCard(ctx context.Context) error {
	for _, skill := range c.card.Skills {
		if skill.ID == secretSkill {
			return errors.New("it stands on the public card")
		}
	}
	if _, err := c.stranger.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{}); !refusedAsStranger(err) {
		return fmt.Errorf("without the token: %v", err)
	}
	card, err := c.client.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{})
	if err != nil && unreadable(err) {
		return cannot("the client sends the request and cannot read `securityRequirements` as the " +
			"`.proto` has them")
	}
	if err != nil {
		return err
	}
	for _, skill := range card.Skills {
		if skill.ID == secretSkill {
			return expect(len(card.Skills), len(c.card.Skills)+1)
		}
	}
	return fmt.Errorf("no such skill: %+v", card.Skills)
}

func refusedAsStranger(err error) bool {
	if err == nil {
		return false
	}
	return errors.Is(err, a2a.ErrUnauthenticated) || strings.Contains(err.Error(), "401") ||
		strings.Contains(strings.ToLower(err.Error()), "authentic") ||
		strings.Contains(err.Error(), "Credentials are missing")
}

// operate tells of every operation whether it works: a JSON line for each.
func operate(args []string) error {
	url, token, binding, version := args[0], args[1], args[2], args[3]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	receiver := &hooks{address: "http://" + listener.Addr().String()}
	go func() { _ = http.Serve(listener, receiver) }()
	operations := []struct {
		name string
		do   func(*caller, context.Context) error
	}{
		{"send", (*caller).opSend},
		{"stream", (*caller).opStream},
		{"get", (*caller).opGet},
		{"list_tasks", (*caller).opList},
		{"cancel", (*caller).opCancel},
		{"resubscribe", (*caller).opResubscribe},
		{"push_set", (*caller).opPushSet},
		{"push_get", (*caller).opPushGet},
		{"push_list", (*caller).opPushList},
		{"push_delete", (*caller).opPushDelete},
		{"webhook", (*caller).opWebhook},
		{"unknown_task", (*caller).opUnknownTask},
		{"extended_card", (*caller).opExtendedCard},
	}
	lines := json.NewEncoder(os.Stdout)
	for _, each := range operations {
		line := map[string]any{"scenario": each.name, "ok": true}
		var unable cannot
		var weak partly
		switch err := judge(url, token, binding, version, receiver, each.do); {
		case errors.As(err, &unable):
			line["cannot"] = string(unable)
		case errors.As(err, &weak):
			line["but"] = string(weak)
		case err != nil:
			line["ok"], line["detail"] = false, err.Error()
		}
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func judge(
	url, token, binding, version string, receiver *hooks, do func(*caller, context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, card, err := dial(ctx, url, binding, version, bearer{token: token})
	if err != nil {
		return err
	}
	stranger, _, err := dial(ctx, url, binding, version, bearer{})
	if err != nil {
		return err
	}
	return do(&caller{client, stranger, card, receiver, url, binding, version}, ctx)
}
