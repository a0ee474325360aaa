import { assertEquals } from "@std/assert";
import { formatPath, formatProblem, formatValue, ManifestProblems } from "./manifest_problem.ts";

Deno.test("formatPath() writes paths as the documentation of Kubernetes does", () => {
  assertEquals(formatPath(["spec", "ports", 0, "port"]), "spec.ports[0].port");
  assertEquals(formatPath(["metadata", "labels", "a.b/c"]), "metadata.labels['a.b/c']");
  assertEquals(formatPath([]), "");
});

Deno.test("formatValue() writes one line and shortens it", () => {
  assertEquals(formatValue(undefined), "");
  assertEquals(formatValue("a\nb"), '"a\\nb"');
  assertEquals(formatValue("x".repeat(500)).length, 80);
});

Deno.test("formatProblem() leaves out absent parts", () => {
  const problem = { file: "a.yaml", line: 3, column: 5, severity: "error" as const };
  assertEquals(
    formatProblem({ ...problem, path: "", value: "", message: "Cannot read YAML: x" }),
    "a.yaml:3:5: Cannot read YAML: x",
  );
  assertEquals(
    formatProblem({ ...problem, path: "spec", value: "", message: "is missing" }),
    "a.yaml:3:5: spec: is missing",
  );
});

Deno.test("ManifestProblems keeps a hundred and looks for no more positions than that", () => {
  const problems = new ManifestProblems("a.yaml");
  let located = 0;
  for (let index = 0; index < 250; index++) {
    problems.add({ severity: "error", path: "", value: "", message: "x" }, () => {
      located++;
      return { line: index, column: 1 };
    });
  }
  assertEquals([problems.list.length, problems.notShown, located], [100, 150, 100]);
});
