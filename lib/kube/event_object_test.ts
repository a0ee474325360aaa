import { assertEquals } from "@std/assert";
import { nodeRegarding } from "./event.ts";
import { eventObject, eventsPath, seriesPatch } from "./event_object.ts";
import type { EventSeries } from "./event_series.ts";

const AT = Date.UTC(2026, 0, 1, 12, 0, 0, 7);
const SERIES: EventSeries = {
  event: {
    type: "Normal",
    reason: "Starting",
    action: "StartKubeProxy",
    note: "",
    regarding: nodeRegarding("node-a"),
  },
  firstAt: AT,
  lastAt: AT + 1000,
  count: 1,
  sentCount: 0,
  sentAt: AT,
};
const REPORTER = { name: "node-a.1", controller: "kube-proxy", instance: "kube-proxy-host-a" };

Deno.test("eventObject() equals the event of kube-proxy's start", () => {
  assertEquals(eventObject(SERIES, REPORTER), {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name: "node-a.1", namespace: "default" },
    eventTime: "2026-01-01T12:00:00.007000Z",
    reportingController: "kube-proxy",
    reportingInstance: "kube-proxy-host-a",
    action: "StartKubeProxy",
    reason: "Starting",
    regarding: { apiVersion: "v1", kind: "Node", name: "node-a" },
    note: "",
    type: "Normal",
  });
});

Deno.test("eventObject() cuts a note at 1024 bytes, and never inside of a character", () => {
  const event = { ...SERIES.event, note: "é".repeat(600) };
  const { note } = eventObject({ ...SERIES, event }, REPORTER);
  assertEquals(note, "é".repeat(512));
});

Deno.test("eventObject() escapes characters of a note that a terminal would obey", () => {
  const event = { ...SERIES.event, note: "a\u001b[2J\u009b1m\u202eb\nc" };
  const { note } = eventObject({ ...SERIES, event }, REPORTER);
  assertEquals(note, "a\\u001b[2J\\u009b1m\\u202eb\\u000ac");
});

Deno.test("eventsPath() is the object's namespace, default for a Node", () => {
  assertEquals(
    eventsPath(nodeRegarding("node-a")),
    "/apis/events.k8s.io/v1/namespaces/default/events",
  );
  const regarding = { apiVersion: "v1", kind: "Service", name: "web", namespace: "demo" };
  assertEquals(eventsPath(regarding), "/apis/events.k8s.io/v1/namespaces/demo/events");
});

Deno.test("seriesPatch() is empty for one event, which the API does not count as a series", () => {
  assertEquals(seriesPatch(SERIES), {});
  assertEquals(seriesPatch({ ...SERIES, count: 2 }), {
    series: { count: 2, lastObservedTime: "2026-01-01T12:00:01.007000Z" },
  });
});
