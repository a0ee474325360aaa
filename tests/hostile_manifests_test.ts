/**
 * Attacks a running kube-relay by files in a folder of manifests, or next to a configuration file,
 * to which other users may write. No file may delay it, and it must serve the Services of other
 * files.
 */
import { assert, assertEquals } from "@std/assert";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { isMissing, program } from "./support/requirement.ts";
import { runTool } from "./support/drivers/run_tool.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { withFolder } from "./support/with_folder.ts";

const WEB = "127.51.0.1";
const NEXT = "127.51.0.2";

const ignore = isMissing("hostile manifests", [program("mkfifo"), program("bash")]);

/** A Service on loopback with its endpoint. */
function serviceText(name: string, at: { clusterIP: string; port: number; to: number }): string {
  const { clusterIP, port, to } = at;
  const ports = [{ name: "a", protocol: "TCP" as const, port: to }];
  return manifestText([
    ...rawObjects("Service", testService(name, { clusterIP, ports: [{ name: "a", port }] })),
    ...rawObjects("EndpointSlice", testEndpointSlice(name, { endpoints: ["127.0.0.1"], ports })),
  ]);
}

/** Waits until an address answers. */
async function answers(relay: LoopbackRelay, address: { hostname: string; port: number }) {
  const answer = () => ask(address).catch(() => undefined);
  return await relay.until(`${address.hostname} answers`, answer);
}

interface Stage {
  readonly relay: LoopbackRelay;
  readonly manifests: string;
  readonly port: number;
  readonly server: TcpServer;
}

/** Runs a test on a relay that serves one Service. */
async function withRelay(test: (stage: Stage) => Promise<void>, args: readonly string[] = []) {
  await using server = TcpServer.named("web");
  const port = unusedPort();
  const web = serviceText("web", { clusterIP: WEB, port, to: server.port });
  await using relay = await LoopbackRelay.start({ manifests: { "web.json": web }, args });
  await relay.settled();
  await test({ relay, manifests: `${relay.folder}/manifests`, port, server });
}

/** Asserts that changes are seen, and that the process ends on request. */
async function isAlive({ relay, manifests, port, server }: Stage): Promise<void> {
  const next = serviceText("next", { clusterIP: NEXT, port, to: server.port });
  await Deno.writeTextFile(`${manifests}/next.json`, next);
  assertEquals(await answers(relay, { hostname: NEXT, port }), "web");
  assertEquals(await ask({ hostname: WEB, port }), "web");
  assertEquals(await relay.stop(), 0, relay.log);
}

/** Files that another user puts into the folder. */
const PUT: Readonly<Record<string, (folder: string) => Promise<unknown>>> = {
  "a named pipe with the name of a manifest": (folder) => runTool("mkfifo", [`${folder}/a.yaml`]),
  "a named pipe of another name": (folder) => runTool("mkfifo", [`${folder}/.a`]),
  "a symlink to a named pipe": async (folder) => {
    await runTool("mkfifo", [`${folder}/pipe`]);
    await Deno.symlink("pipe", `${folder}/a.yaml`);
  },
  "a named pipe in the place of its manifest": async (folder) => {
    await runTool("mkfifo", [`${folder}/pipe`]);
    await Deno.rename(`${folder}/pipe`, `${folder}/web.json`);
  },
  "symlinks to devices": async (folder) => {
    for (const name of ["zero", "tty", "random"]) {
      await Deno.symlink(`/dev/${name}`, `${folder}/${name}.yaml`);
    }
  },
  "a symlink to a file of the kernel that never ends": (folder) =>
    Deno.symlink("/proc/kmsg", `${folder}/a.yaml`),
};

for (const [what, put] of Object.entries(PUT)) {
  Deno.test({
    name: `${what} does not delay kube-relay`,
    ignore,
    fn: () =>
      withRelay(async (stage) => {
        await put(stage.manifests);
        // Events of a watch come in order: a later one shows that the first was handled.
        await Deno.writeTextFile(`${stage.manifests}/later.yaml`, "kind: Other\n");
        await isAlive(stage);
      }),
  });
}

/** Texts for which a YAML parser would take many seconds. */
const HEAVY: Readonly<Record<string, string>> = {
  brackets: "[".repeat(512 * 1024 - 1),
  "closing brackets": "]".repeat(512 * 1024 - 1),
  "short lines": "ü: a\n".repeat(100_000),
  commas: `[${",".repeat(512 * 1024 - 2)}`,
};

Deno.test({
  name: "a manifest that a parser would take long for is refused while other Services answer",
  ignore,
  fn: () =>
    withRelay(async (stage) => {
      const { manifests, port, relay } = stage;
      for (const [index, text] of Object.values(HEAVY).entries()) {
        await Deno.writeTextFile(`${manifests}/heavy-${index}.yaml`, text);
        await relay.until("the file is refused", async () => {
          assertEquals(await ask({ hostname: WEB, port }), "web");
          return relay.log.includes(`heavy-${index}.yaml`) || undefined;
        });
      }
      await isAlive(stage);
    }),
});

const SERVICE = { apiVersion: "v1", kind: "Service" };
const PORTS = [{ name: "a", port: 80 }];

/** Objects that a tenant may write, given the ports of the process itself. */
const HOSTILE: Readonly<Record<string, (own: number) => Record<string, unknown>>> = {
  "claims a port of kube-relay": (port) => ({ externalIPs: ["127.0.0.1"], ports: [{ port }] }),
  "claims the address of a good Service": () => ({ externalIPs: [WEB], ports: PORTS }),
  "claims every address": () => ({ externalIPs: ["0.0.0.0"], ports: PORTS }),
  "claims addresses without an owner": () => ({
    externalIPs: ["224.0.0.1", "255.255.255.255", "169.254.169.254", "192.0.2.77"],
    ports: PORTS,
  }),
  "has a cluster IP of another kind": () => ({ clusterIP: "\u001b[31m\n10.0.0.1", ports: PORTS }),
  "has ports out of range": () => ({ ports: [{ port: 0 }, { port: 70_000 }, { port: -1 }] }),
  "has too many ports": () => ({
    ports: Array.from(
      { length: 5_000 },
      (_, index) => ({ name: `p${index}`, port: 20_000 + index }),
    ),
  }),
  "is no object at all": () => ({ ports: "\u001b]0;x\u0007", clusterIPs: { a: [] } }),
};

Deno.test({
  name:
    "hostile Services cost neither another Service nor kube-relay's own ports in userspace mode",
  ignore,
  fn: () =>
    withRelay(async (stage) => {
      const { relay, manifests, port } = stage;
      for (const [index, [what, spec]] of Object.entries(HOSTILE).entries()) {
        const object = {
          ...SERVICE,
          metadata: { name: `hostile-${index}`, namespace: "default" },
          spec: { clusterIP: `127.51.9.${index + 1}`, ...spec(relay.metricsPort) },
        };
        await Deno.writeTextFile(`${manifests}/hostile-${index}.json`, JSON.stringify(object));
        await relay.until(`one that ${what} is read`, async () => {
          const { sources } = await relay.status();
          return JSON.stringify(sources).includes(`hostile-${index}.json`) &&
            (await relay.settled());
        });
        assertEquals(await ask({ hostname: WEB, port }), "web", what);
        assertEquals((await relay.scrape()).includes("kube_relay_"), true, what);
      }
      // deno-lint-ignore no-control-regex -- what a terminal would obey
      assertEquals(/[\x00-\x09\x0b-\x1f]/.exec(relay.log), null);
      await isAlive(stage);
    }),
});

Deno.test({
  name: "a manifest that is swapped for a named pipe and back does not hold up kube-relay",
  ignore,
  fn: () =>
    withRelay(async (stage) => {
      const script = `cd '${stage.manifests}'; mkfifo ../pipe; ` +
        'for i in $(seq 500); do echo "# $i" > ../file; mv ../file a.yaml; ' +
        "ln -f ../pipe ../pipe2; mv ../pipe2 a.yaml; done";
      await runTool("bash", ["-c", script]);
      await isAlive(stage);
    }),
});

Deno.test({
  name: "a named pipe next to the configuration file does not delay kube-relay",
  ignore,
  fn: () =>
    withFolder(async (folder) => {
      const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
        "mode: userspace\n";
      const ports = [unusedPort(), unusedPort()];
      const config = `${head}healthzBindAddress: 127.0.0.1:${ports[0]}\n` +
        `metricsBindAddress: 127.0.0.1:${ports[1]}\n`;
      await Deno.writeTextFile(`${folder}/c.yaml`, config);
      await withRelay(async (stage) => {
        await runTool("mkfifo", [`${folder}/pipe`]);
        await Deno.writeTextFile(`${folder}/c.yaml`, `${config}logging: {verbosity: 4}\n`);
        const { relay } = stage;
        await relay.until("the change is taken up", () => relay.log.includes("logging.verbosity"));
        // A pipe in its place is no configuration, and is not waited for.
        await Deno.rename(`${folder}/pipe`, `${folder}/c.yaml`);
        await isAlive(stage);
      }, [`--config=${folder}/c.yaml`]);
    }),
});

Deno.test({
  name: "Services are served as they are read, while other files are still being read",
  ignore,
  async fn() {
    await using server = TcpServer.named("web");
    const port = unusedPort();
    // Each document has to be parsed with care: it takes many seconds.
    const slow = Array.from(
      { length: 30_000 },
      (_, index) =>
        `---\napiVersion: v1\nkind: Service\nmetadata: {name: s${index}, annotations: {a: !!str 1}}\n` +
        "spec: {clusterIP: None, ports: [{port: 80}]}\n",
    );
    await using relay = await LoopbackRelay.start({
      manifests: {
        "a.yaml": slow.join(""),
        "web.json": serviceText("web", { clusterIP: WEB, port, to: server.port }),
      },
    });
    assertEquals(await answers(relay, { hostname: WEB, port }), "web");
    const { phase, sources } = await relay.status();
    assert(phase !== "serving", "the slow file is read by now; the test proves nothing");
    assert(sources.length > 0);
    assertEquals(await relay.stop(), 0, relay.log);
  },
});
