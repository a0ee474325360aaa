import { assertEquals } from "@std/assert";
import { ProblemCollector } from "./problem_collector.ts";
import { triggerTimeOf } from "./trigger_time.ts";

const ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";

function read(text: string) {
  const problems = new ProblemCollector("EndpointSlice", "ns1/web-1");
  const time = triggerTimeOf({ name: "web-1", annotations: { [ANNOTATION]: text } }, problems);
  return { time, problems: problems.problems.length };
}

const START = Date.UTC(2026, 0, 2, 3, 4, 5);

for (
  const [text, time] of [
    ["2026-01-02T03:04:05Z", START],
    ["2026-01-02T03:04:05.5Z", START + 500],
    ["2026-01-02T03:04:05.123456789Z", START + 123.456789],
    ["2026-01-02T05:04:05+02:00", START],
  ] as const
) {
  Deno.test(`triggerTimeOf() reads ${text}`, () => {
    assertEquals(read(text), { time, problems: 0 });
  });
}

for (
  const text of [
    "",
    "now",
    "2026-01-02",
    "2026-01-02 03:04:05Z",
    "2026-01-02T03:04:05",
    "2026-13-02T03:04:05Z",
    "Fri, 02 Jan 2026 03:04:05 GMT",
  ]
) {
  Deno.test(`triggerTimeOf() reports '${text}'`, () => {
    assertEquals(read(text), { time: undefined, problems: 1 });
  });
}

Deno.test("triggerTimeOf() keeps silent where there is none", () => {
  const problems = new ProblemCollector("EndpointSlice", "ns1/web-1");
  assertEquals(triggerTimeOf({ name: "web-1" }, problems), undefined);
  assertEquals(problems.problems, []);
});
