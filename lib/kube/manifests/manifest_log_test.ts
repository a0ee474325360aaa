import { assertEquals } from "@std/assert";
import { letPass, serviceYaml, withManifests } from "../../../tests/support/manifest_harness.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");

Deno.test("run() counts other kinds in one verbose line for each file", async () => {
  const other = "apiVersion: apps/v1\nkind: Deployment\n";
  await withManifests({ "m/a.yaml": `${other}---\n${other}---\n${WEB_1}` }, ({ harness }) => {
    const lines = harness.logger.lines.filter(({ level }) => level === "verbose");
    assertEquals(lines.map(({ fields }) => fields), [
      { component: "manifests", file: "m/a.yaml", kinds: "Deployment x2" },
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
    assertEquals(rest?.fields, { component: "manifests", problems: 130 });
    const [status] = harness.source.status();
    assertEquals([status!.problems.length, status!.problemsNotShown], [100, 50]);
    return Promise.resolve();
  });
});

Deno.test("run() warns once an hour of a fault that stays in a file that keeps changing", async () => {
  await withManifests({ "m/a.yaml": WEB_1, "m/b.yaml": WEB_1 }, async (started) => {
    const { files, harness: { logger } } = started;
    const warnings = () => logger.lines.filter(({ level }) => level === "warn");
    assertEquals(warnings().length, 1);
    for (let change = 0; change < 5; change++) {
      files.write("m/b.yaml", `# ${"x".repeat(change)}\n${WEB_1}`);
      await letPass(started, 3_000);
    }
    assertEquals(logger.lines.filter(({ message }) => message === "Read manifests").length, 6);
    assertEquals(warnings().length, 1);
    started.clock.stall(3_600_000);
    files.write("m/b.yaml", `${WEB_1}# later`);
    await letPass(started, 3_000);
    assertEquals(warnings().length, 2);
  });
});
