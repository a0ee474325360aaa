import { assertEquals } from "@std/assert";
import { ProblemCollector } from "./problem_collector.ts";

Deno.test("ProblemCollector keeps problems in the order in which they are found", () => {
  const problems = new ProblemCollector("Service", "ns1/web");
  assertEquals(problems.problems, []);
  problems.report("spec.externalIPs[1]", "nonsense", "It is left out");
  problems.report("spec.ports[0]", { port: 0 }, "It is left out");
  assertEquals(problems.problems, [
    {
      kind: "Service",
      object: "ns1/web",
      path: "spec.externalIPs[1]",
      value: "nonsense",
      message: "It is left out",
    },
    {
      kind: "Service",
      object: "ns1/web",
      path: "spec.ports[0]",
      value: '{"port":0}',
      message: "It is left out",
    },
  ]);
});

for (const [value, expected] of [[null, "null"], [undefined, ""], [0, "0"]] as const) {
  Deno.test(`ProblemCollector writes ${value} as '${expected}'`, () => {
    const problems = new ProblemCollector("Service", "ns1/web");
    problems.report("spec", value, "It is left out");
    assertEquals(problems.problems[0]?.value, expected);
  });
}

Deno.test("ProblemCollector cuts long values", () => {
  const problems = new ProblemCollector("Service", "ns1/web");
  problems.report("spec", "x".repeat(1000), "It is left out");
  assertEquals(problems.problems[0]?.value, `${"x".repeat(80)}…`);
});

Deno.test("ProblemCollector keeps the first problems of an object", () => {
  const problems = new ProblemCollector("Service", "ns1/web");
  for (let index = 0; index < 50_000; index++) {
    problems.report(`spec.externalIPs[${index}]`, "x", "It is left out");
  }
  assertEquals(problems.problems.length, 20);
  assertEquals(problems.problems[19]?.path, "spec.externalIPs[19]");
});
