/** The first SIGINT or SIGTERM ends kube-relay, whatever it does: read a pipe, compute, serve. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { permissionFlags } from "../lib/os/permissions.ts";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { eventually } from "./support/eventually.ts";
import { LineProcess } from "./support/drivers/line_process.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { program, ROOT, testNeeding } from "./support/requirement.ts";
import { runTool } from "./support/drivers/run_tool.ts";
import { withFolder } from "./support/with_folder.ts";

const MAIN = new URL("../main.ts", import.meta.url).pathname;
const CONFIG = new URL("../deno.json", import.meta.url).pathname;
const RUN = ["run", ...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];
const LINE = [...RUN, `--config=${CONFIG}`, MAIN];

/** Enough for a verb to compute for many seconds. */
const SERVICES = 40_000;
/** Processor time after which a verb has loaded its code and computes, in ticks of 10 ms. */
const BUSY_TICKS = 150;

const STATUS = { SIGINT: 130, SIGTERM: 143 } as const;

/** Verbs that compute, in a folder with many Services as manifests and in a dump. */
const COMPUTING: readonly (readonly [signal: keyof typeof STATUS, ...line: string[]])[] = [
  ["SIGINT", "render", "--mode=iptables", "--manifests=many.json"],
  ["SIGTERM", "explain", "10.244.1.7", "10.96.0.1:80", "--mode=nftables", "--manifests=many.json"],
  ["SIGTERM", "dump", "--mode=nftables", "--manifests=many.json", "next.json"],
  ["SIGINT", "diff", "--from=dump.json", "--manifests=many.json"],
];

async function writeManyServices(path: string): Promise<void> {
  const numbers = Array.from({ length: SERVICES }, (_, index) => index + 1);
  const services = numbers.map((n) =>
    testService(`web-${n}`, { clusterIP: `10.${96 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}` })
  );
  const slices = numbers.map((n) => testEndpointSlice(`web-${n}`, { endpoints: ["10.244.0.9"] }));
  const items = [...rawObjects("Service", ...services), ...rawObjects("EndpointSlice", ...slices)];
  await Deno.writeTextFile(path, manifestText(items));
}

/** Processor time that a process has used. */
async function ticksOf(pid: number): Promise<number> {
  const fields = (await output("cat", `/proc/${pid}/stat`)).replace(/^.*\) /, "").split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

Deno.test("the first signal ends a verb that computes", async (t) => {
  await withFolder(async (folder) => {
    await writeManyServices(`${folder}/many.json`);
    const inFolder = (verb: readonly string[]) =>
      verb.map((word) => word.replace(/\w+\.json$/, (name) => `${folder}/${name}`));
    const dump = ["dump", "--mode=nftables", "--manifests=many.json", "dump.json"];
    await runTool(Deno.execPath(), [...LINE, ...inFolder(dump)]);
    for (const [signal, ...verb] of COMPUTING) {
      await t.step(`${verb.join(" ")} and ${signal}`, async () => {
        const line = [...LINE, ...inFolder(verb)];
        await using process = new LineProcess(Deno.execPath(), line);
        await eventually("it computes", async () => await ticksOf(process.pid) >= BUSY_TICKS);
        process.signal(signal);
        assertEquals((await process.status()).code, STATUS[signal], process.errors);
      });
    }
  });
});

/** Ways to read a configuration file or a dump, which is `PIPE`. */
const READING: readonly string[] = [
  "--config=PIPE",
  "status --config=PIPE",
  "status --from=PIPE",
  "doctor --config=PIPE",
  "explain node 10.96.0.1:80 --from=PIPE",
  "render --from=PIPE",
  "cleanup --dry-run --config=PIPE",
  "write-config --write-config-to=/dev/stdout --config=PIPE",
];

Deno.test("the first signal ends a verb while it reads a pipe without a writer", async (t) => {
  await withFolder(async (folder) => {
    const pipe = `${folder}/pipe`;
    await runTool("mkfifo", [pipe]);
    for (const [index, words] of READING.entries()) {
      // Both for the run itself; the other verbs share their code.
      const signals = ["SIGINT", "SIGTERM"] as const;
      for (const signal of index === 0 ? signals : [signals[index % 2]!]) {
        await t.step(`${words} and ${signal}`, async () => {
          const line = [...LINE, ...words.replace("PIPE", pipe).split(" ")];
          await using process = new LineProcess(Deno.execPath(), line);
          await isReading(process.pid, pipe);
          process.signal(signal);
          assertEquals((await process.status()).code, STATUS[signal], process.errors);
        });
      }
    }
  });
});

/** Waits until a process has a file open, or waits for that. */
async function isReading(pid: number, path: string): Promise<void> {
  await eventually(`process ${pid} reads ${path}`, async () => {
    const text = await output("sh", "-c", `ls -l /proc/${pid}/fd; cat /proc/${pid}/task/*/wchan`);
    return text.includes(path) || text.includes("wait_for_partner");
  });
}

async function output(command: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await new Deno.Command(command, { args: [...args] }).output();
  return new TextDecoder().decode(stdout);
}

Deno.test("--config reads a pipe that is written to slowly, to its end", async () => {
  const lines = ["apiVersion: kubeproxy.config.k8s.io/v1alpha1", "kind: KubeProxyConfiguration"];
  const writer = `printf '%s\\n' ${lines.map((line) => `'${line}'`).join(" ")}; sleep 0.5; ` +
    "echo 'clusterCIDR: x'";
  const line = [Deno.execPath(), ...LINE, "--write-config-to=/dev/stdout"].join(" ");
  await using shell = new LineProcess("bash", ["-c", `exec ${line} --config <(${writer})`]);
  assertEquals((await shell.status()).code, 2);
  assertStringIncludes(shell.errors, "clusterCIDR");
});

const test = testNeeding("signals in a container", [ROOT, program("unshare"), program("ps")]);

test("the first signal ends kube-relay as the first process of a container", () =>
  withFolder(async (folder) => {
    const pipe = `${folder}/config`;
    await runTool("mkfifo", [pipe]);
    const line = [Deno.execPath(), ...LINE, `--config=${pipe}`];
    await using container = new LineProcess("unshare", ["--pid", "--fork", "--", ...line]);
    const child = await eventually("it has begun", async () => {
      return Number(await output("ps", "-o", "pid=", "--ppid", `${container.pid}`)) || undefined;
    });
    await isReading(child, pipe);
    Deno.kill(child, "SIGTERM");
    assertEquals((await container.status()).code, 143, container.errors);
  }));
