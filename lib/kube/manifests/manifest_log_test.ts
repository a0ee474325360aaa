import { assertEquals } from "@std/assert";
import {
  letPass,
  serviceYaml,
  withManifests,
} from "../../../tests/support/stages/manifest_harness.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");

Deno.test("run() warns once of kinds that are not served, and status() names those of each file", async () => {
  const [deployment, policy, namespace] = [
    "apiVersion: apps/v1\nkind: Deployment\n",
    "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: { name: a }\n",
    "apiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n",
  ];
  const contents = {
    "m/a.yaml": [deployment, deployment, WEB_1, policy, namespace].join("---\n"),
    "m/b.yaml": policy,
    "m/c.yaml": namespace,
  };
  await withManifests(contents, async (started) => {
    const { files, harness } = started;
    const warned = () =>
      harness.logger.lines.filter(({ level }) => level === "warn").map(({ fields }) => fields);
    const cure = "NetworkPolicies are enforced with --network-policy only";
    const first = {
      component: "manifests",
      kinds: "NetworkPolicy x2, Deployment x2",
      files: ["m/a.yaml", "m/b.yaml"],
      cure,
    };
    assertEquals(warned(), [first]);
    assertEquals(harness.source.status().map(({ unserved }) => unserved), [
      `NetworkPolicy x1, Deployment x2 (${cure})`,
      `NetworkPolicy x1 (${cure})`,
      undefined,
    ]);
    files.write("m/b.yaml", `${policy}---\n${policy}---\napiVersion: v1\nkind: Secret\n`);
    await letPass(started, 3_000);
    assertEquals(warned(), [first, {
      component: "manifests",
      kinds: "Secret x1",
      files: ["m/b.yaml"],
    }]);
  });
});

Deno.test("run() writes at most twenty lines about problems a minute, status() shows more", async () => {
  const bad = (value: string) =>
    Array.from({ length: 150 }, (_, index) => serviceYaml(`web-${index}`, value)).join("---\n");
  await withManifests({ "m/a.yaml": bad("x") }, async (started) => {
    const { files, harness } = started;
    const linesOf = (wanted: string) =>
      harness.logger.lines.filter(({ level }) => level === wanted);
    assertEquals(linesOf("error").length, 20);
    assertEquals(linesOf("info").at(-1)?.fields?.["problems"], 150);
    const [status] = harness.source.status();
    assertEquals([status!.problems.length, status!.problemsNotShown], [100, {
      error: 50,
      warning: 0,
    }]);
    for (let save = 0; save < 5; save++) {
      files.write("m/a.yaml", bad(`x${save}`));
      await letPass(started, 3_000);
    }
    assertEquals(linesOf("error").length, 20);
    started.clock.stall(60_000);
    files.write("m/a.yaml", bad("other"));
    await letPass(started, 3_000);
    assertEquals(linesOf("error").length, 40);
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
