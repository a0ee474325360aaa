import { assertEquals } from "@std/assert";
import { serviceYaml, withManifests } from "../../../tests/support/manifest_harness.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");

Deno.test("run() counts other kinds in one verbose line for each file", async () => {
  const other = "apiVersion: apps/v1\nkind: Deployment\n";
  await withManifests({ "m/a.yaml": `${other}---\n${other}---\n${WEB_1}` }, ({ harness }) => {
    const lines = harness.logger.lines.filter(({ level }) => level === "verbose");
    assertEquals(lines.map(({ fields }) => fields), [
      { file: "m/a.yaml", kinds: "Deployment x2" },
    ]);
    return Promise.resolve();
  });
});

Deno.test("run() writes at most twenty lines about problems, status() shows more", async () => {
  const bad = Array.from({ length: 150 }, (_, index) => serviceYaml(`web-${index}`, "x"));
  await withManifests({ "m/a.yaml": bad.join("---\n") }, ({ harness }) => {
    const errors = harness.logger.lines.filter(({ level }) => level === "error");
    assertEquals(errors.length, 20);
    const rest = harness.logger.lines.find(({ message }) => message.includes("more problems"));
    assertEquals(rest?.fields, { problems: 130 });
    const [status] = harness.source.status();
    assertEquals([status!.problems.length, status!.problemsNotShown], [100, 50]);
    return Promise.resolve();
  });
});
