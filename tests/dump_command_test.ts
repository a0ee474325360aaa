/**
 * `kube-relay dump` as a command line: of a running process, of manifests, into files and to standard
 * output.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { type CommandLineResult, runInProcess } from "./support/drivers/command_line.ts";
import { testNode } from "./support/builders/builders.ts";
import { DumpedRelay, withoutHeading } from "./support/stages/dumped_relay.ts";
import { FakeCommandRunner } from "./support/fakes/fake_command_runner.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";

const MANIFESTS = new URL("../examples/manifests", import.meta.url).pathname;

function run(...argv: readonly string[]): Promise<CommandLineResult> {
  return runInProcess(argv, { process: { hostname: "desk" } });
}

async function inFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("dump writes a file of a running kube-relay, and status and render read it", () =>
  inFolder(async (folder) => {
    const node = `${folder}/node.json`;
    await Deno.writeTextFile(node, manifestText(rawObjects("Node", testNode())));
    await using relay = await DumpedRelay.start({
      mode: "userspace",
      commands: new FakeCommandRunner().on("", { code: 127 }),
      flags: [`--manifests=${MANIFESTS},${node}`],
    });
    const file = `${folder}/node7.json`;
    const socket = `--control-socket=${relay.socket}`;
    const written = await run("dump", file, socket);
    assertEquals([written.code, written.err], [0, ""]);
    assertEquals((await Deno.stat(file)).mode! & 0o777, 0o600);
    assertEquals(await run("dump", file, socket), {
      code: 1,
      out: "",
      err: `kube-relay: Cannot write the dump to '${file}': a file '${file}' exists and is ` +
        "not replaced; remove it, or name another file\n",
    });
    const rendered = await run("render", "--from", file, "--family=ipv4");
    assertEquals([rendered.code, rendered.err], [0, ""]);
    assertEquals(withoutHeading(rendered.out), relay.text());
    assertStringIncludes((await run("status", "--from", file)).out, "process 4711");
    // As text, a health check that fails meanwhile gives the names less room.
    const status = await run("status", "--from", file, "--json");
    assertStringIncludes(status.out, "databases/orders-db");
    assertStringIncludes((await run("status", "--changes", "--from", file)).out, "First sync");
    const { out } = await run("dump", "-", socket);
    assertEquals(JSON.parse(out).nodeName, JSON.parse(await Deno.readTextFile(file)).nodeName);
  }));

Deno.test("dump of manifests asks no process, and renders as the manifests do, by --from and as a manifest itself", () =>
  inFolder(async (folder) => {
    const file = `${folder}/a.json`;
    const source = ["--mode=nftables", `--manifests=${MANIFESTS}`];
    assertEquals((await run("dump", file, ...source)).code, 0);
    const rules = await run("render", ...source);
    assertEquals(await run("render", "--from", file), rules);
    assertEquals(await run("render", "--mode=nftables", `--manifests=${file}`), rules);
    const { code, err } = await run("status", "--from", file);
    assertEquals(code, 1);
    assertStringIncludes(err, "no kube-relay was running when it was made");
  }));

Deno.test("dump of manifests has the objects of NetworkPolicies, if they are enforced", () =>
  inFolder(async (folder) => {
    const manifests = new URL("../examples/network-policy", import.meta.url).pathname;
    const source = ["--mode=nftables", `--manifests=${manifests}`, "--network-policy"];
    assertEquals((await run("dump", `${folder}/a.json`, ...source)).code, 0);
    const { objects } = JSON.parse(await Deno.readTextFile(`${folder}/a.json`));
    for (const kind of ["pods", "namespaces", "networkpolicies"]) {
      assertEquals(objects[kind].length > 0, true, kind);
    }
    assertEquals(await run("render", "--from", `${folder}/a.json`), await run("render", ...source));
  }));

Deno.test("dump of unusable manifests exits with 1, and is written", () =>
  inFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/bad.yaml`, "kind: Service\napiVersion: v1\n");
    const file = `${folder}/dump`;
    const { code, err } = await run(
      "dump",
      file,
      "--mode=iptables",
      `--manifests=${folder}/bad.yaml`,
    );
    assertEquals(code, 1);
    assertStringIncludes(err, "bad.yaml:1:1");
    assertEquals(JSON.parse(await Deno.readTextFile(file)).objects.services, []);
  }));

Deno.test("dump names the missing part: a file, a running process, a folder", () =>
  inFolder(async (folder) => {
    const unused = `--control-socket=${folder}/unused`;
    assertEquals((await run("dump")).code, 2);
    assertStringIncludes((await run("dump")).err, "'dump' lacks FILE");
    assertStringIncludes(
      (await run("dump", `${folder}/a`, unused)).err,
      "no program listens there",
    );
    const { err } = await run("dump", "/nowhere/a", "--mode=iptables", `--manifests=${MANIFESTS}`);
    const why = "cannot create a file in the folder '/nowhere': No such file or directory";
    assertStringIncludes(err, `Cannot write the dump to '/nowhere/a': ${why}`);
  }));

Deno.test("--from excludes flags for values that the dump contains", async () => {
  const besides = { manifests: "m", "proxy-mode": "ipvs", "hostname-override": "node-b" };
  for (const [flag, value] of Object.entries(besides)) {
    const { code, err } = await run("render", "--from=a.json", `--${flag}=${value}`);
    assertEquals(code, 2, flag);
    assertStringIncludes(
      err,
      `--from: Cannot take this from a dump and from --${flag} at once; give one of them`,
    );
  }
  assertStringIncludes((await run("render", "--from=")).err, "Expected the path of a dump");
});
