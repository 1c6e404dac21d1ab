package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
)

type seen map[string]any

// to is a message for a skill, which names it for dialects that cannot.
func to(skill string, parts ...*a2a.Part) *a2a.SendMessageRequest {
	command := a2a.NewDataPart(map[string]any{"do": skill})
	message := a2a.NewMessage(a2a.MessageRoleUser, append([]*a2a.Part{command}, parts...)...)
	message.SetMeta("skillId", skill)
	return &a2a.SendMessageRequest{Message: message}
}

func text(words string) *a2a.Part { return a2a.NewTextPart(words) }

// artifacts joins the text of all artifacts.
func artifacts(task *a2a.Task) string {
	var joined strings.Builder
	for _, artifact := range task.Artifacts {
		joined.WriteString(textOf(artifact.Parts))
	}
	return joined.String()
}

func says(task *a2a.Task) string {
	if task.Status.Message == nil {
		return ""
	}
	return textOf(task.Status.Message.Parts)
}

func playSend(ctx context.Context, client *a2aclient.Client) (seen, error) {
	task, err := taskOf(client.SendMessage(ctx, to("echo", text("hi"))))
	if err != nil {
		return nil, err
	}
	return seen{"state": stateOf(task.Status.State), "text": artifacts(task)}, nil
}

func playSkill(ctx context.Context, client *a2aclient.Client) (seen, error) {
	task, err := taskOf(client.SendMessage(ctx, to("name", text("go"))))
	if err != nil {
		return nil, err
	}
	return seen{"done_by": artifacts(task)}, nil
}

func playReply(ctx context.Context, client *a2aclient.Client) (seen, error) {
	result, err := client.SendMessage(ctx, to("greet", text("hello")))
	if err != nil {
		return nil, err
	}
	if message, ok := result.(*a2a.Message); ok {
		return seen{"kind": "message", "text": textOf(message.Parts)}, nil
	}
	task := result.(*a2a.Task)
	return seen{"kind": "task", "text": artifacts(task) + says(task)}, nil
}

func playStream(ctx context.Context, client *a2aclient.Client) (seen, error) {
	pieces := []string{}
	var last a2a.TaskState
	for event, err := range client.SendStreamingMessage(ctx, to("count", text("4"))) {
		if err != nil {
			return nil, err
		}
		switch event := event.(type) {
		case *a2a.TaskArtifactUpdateEvent:
			if piece := textOf(event.Artifact.Parts); piece != "" {
				pieces = append(pieces, piece)
			}
		case *a2a.TaskStatusUpdateEvent:
			last = event.Status.State
		case *a2a.Task:
			last = event.Status.State
		}
	}
	return seen{"pieces": pieces, "state": stateOf(last)}, nil
}

func playQuestion(ctx context.Context, client *a2aclient.Client) (seen, error) {
	task, err := taskOf(client.SendMessage(ctx, to("trip", text("go"))))
	questions := []string{}
	for _, answer := range []string{"Rome", "3"} {
		if err != nil {
			return nil, err
		}
		if task.Status.State != a2a.TaskStateInputRequired {
			return nil, fmt.Errorf("it is %s: %s", task.Status.State, says(task))
		}
		questions = append(questions, says(task))
		message := a2a.NewMessageForTask(a2a.MessageRoleUser, task, text(answer))
		task, err = taskOf(client.SendMessage(ctx, &a2a.SendMessageRequest{Message: message}))
	}
	if err != nil {
		return nil, err
	}
	return seen{"asked": questions, "state": stateOf(task.Status.State), "text": artifacts(task)}, nil
}

func playCancel(ctx context.Context, client *a2aclient.Client) (seen, error) {
	var id a2a.TaskID
	for event, err := range client.SendStreamingMessage(ctx, to("slow", text("go"))) {
		if err != nil {
			return nil, err
		}
		id = event.TaskInfo().TaskID
		status, ok := event.(*a2a.TaskStatusUpdateEvent)
		if ok && status.Status.State == a2a.TaskStateWorking {
			break
		}
	}
	found, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: id})
	if err != nil {
		return nil, err
	}
	gone, err := client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id})
	if err != nil {
		return nil, err
	}
	return seen{"before": stateOf(found.Status.State), "after": stateOf(gone.Status.State)}, nil
}

func playFile(ctx context.Context, client *a2aclient.Client) (seen, error) {
	given := a2a.NewRawPart([]byte("\x00\xffabc"))
	given.Filename, given.MediaType = "a.bin", "application/x-a"
	task, err := taskOf(client.SendMessage(ctx, to("file", given)))
	if err != nil {
		return nil, err
	}
	if len(task.Artifacts) != 1 || len(task.Artifacts[0].Parts) != 1 {
		return nil, fmt.Errorf("not one part: %+v, %s", task.Artifacts, says(task))
	}
	part := task.Artifacts[0].Parts[0]
	return seen{
		"content":    hex.EncodeToString(part.Raw()),
		"filename":   part.Filename,
		"media_type": part.MediaType,
	}, nil
}

func playData(ctx context.Context, client *a2aclient.Client) (seen, error) {
	given := a2a.NewDataPart(map[string]any{"a": 1, "b": []any{true, nil, "x"}})
	task, err := taskOf(client.SendMessage(ctx, to("data", given)))
	if err != nil {
		return nil, err
	}
	if len(task.Artifacts) != 1 || len(task.Artifacts[0].Parts) != 1 {
		return nil, fmt.Errorf("not one part: %+v, %s", task.Artifacts, says(task))
	}
	return seen{"value": task.Artifacts[0].Parts[0].Data()}, nil
}

func playFailure(ctx context.Context, client *a2aclient.Client) (seen, error) {
	task, err := taskOf(client.SendMessage(ctx, to("fail", text("go"))))
	if err != nil {
		return nil, err
	}
	var reason any
	if task.Status.Message != nil {
		reason = task.Status.Message.Metadata["reason"]
	}
	return seen{"state": stateOf(task.Status.State), "says": says(task), "reason": reason}, nil
}

func playRejection(ctx context.Context, client *a2aclient.Client) (seen, error) {
	task, err := taskOf(client.SendMessage(ctx, to("refuse", text("go"))))
	if err != nil {
		return nil, err
	}
	return seen{"state": stateOf(task.Status.State), "says": says(task)}, nil
}

func playError(ctx context.Context, client *a2aclient.Client) (seen, error) {
	picture := a2a.NewRawPart([]byte("\x89PNG"))
	picture.Filename, picture.MediaType = "a.png", "image/png"
	result, err := client.SendMessage(ctx, to("picky", picture))
	if errors.Is(err, a2a.ErrUnsupportedContentType) {
		return seen{"error": "content type"}, nil
	}
	if err != nil && unreadable03(err) {
		return seen{"error": "one that it cannot read"}, nil
	}
	if err != nil && strings.HasPrefix(err.Error(), "ContentTypeNotSupportedError: ") {
		return seen{"error": "its text alone"}, nil
	}
	if err != nil {
		return nil, err
	}
	if task, ok := result.(*a2a.Task); ok {
		return seen{"error": "a task that is " + stateOf(task.Status.State)}, nil
	}
	return seen{"error": "a message"}, nil
}

func playResume(ctx context.Context, client *a2aclient.Client) (seen, error) {
	var opened a2a.TaskInfo
	for event, err := range client.SendStreamingMessage(ctx, to("halves", text("go"))) {
		if err != nil {
			return nil, err
		}
		opened = event.TaskInfo()
		status, ok := event.(*a2a.TaskStatusUpdateEvent)
		if _, piece := event.(*a2a.TaskArtifactUpdateEvent); piece || ok && status.Status.Message != nil {
			break
		}
	}
	if _, err := client.SendMessage(ctx, to("let-go", text(opened.ContextID))); err != nil {
		return nil, err
	}
	// It may have ended before anybody asks for the rest.
	for _, err := range client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: opened.TaskID}) {
		if err != nil {
			break
		}
	}
	task, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: opened.TaskID})
	if err != nil {
		return nil, err
	}
	return seen{"state": stateOf(task.Status.State), "text": artifacts(task)}, nil
}

func playGet(ctx context.Context, client *a2aclient.Client) (seen, error) {
	sent, err := taskOf(client.SendMessage(ctx, to("echo", text("again"))))
	if err != nil {
		return nil, err
	}
	found, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: sent.ID})
	if err != nil {
		return nil, err
	}
	same := found.ID == sent.ID && found.ContextID == sent.ContextID
	return seen{"same": same, "text": artifacts(found)}, nil
}

// play runs every scenario and says what came of it: a JSON line for each.
func play(args []string) error {
	url, binding, version := args[0], args[1], args[2]
	scenarios := []struct {
		name string
		run  func(context.Context, *a2aclient.Client) (seen, error)
	}{
		{"send", playSend},
		{"skill", playSkill},
		{"direct reply", playReply},
		{"stream", playStream},
		{"question and answer", playQuestion},
		{"cancel", playCancel},
		{"file", playFile},
		{"data", playData},
		{"failure", playFailure},
		{"rejection", playRejection},
		{"error", playError},
		{"get", playGet},
		{"resume", playResume},
	}
	lines := json.NewEncoder(os.Stdout)
	for _, each := range scenarios {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		line := map[string]any{"scenario": each.name}
		client, _, err := dial(ctx, url, binding, version)
		if err == nil {
			var found seen
			if found, err = each.run(ctx, client); err == nil {
				line["seen"] = found
			}
		}
		if err != nil {
			line["broken"] = err.Error()
		}
		cancel()
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
