/**
 * Tests that a running kube-relay writes only lines of the log to standard error, in the requested
 * form: a collector of JSON would lose other lines.
 */
import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { askControl } from "../lib/tools/control/control_client.ts";
import { permissionFlags } from "../lib/os/permissions.ts";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { eventually } from "./support/eventually.ts";
import { LineProcess } from "./support/drivers/line_process.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { ownFlags } from "./support/drivers/own_flags.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { withFolder } from "./support/with_folder.ts";

const MAIN = new URL("../main.ts", import.meta.url).pathname;
const CONFIG = new URL("../deno.json", import.meta.url).pathname;
const DENO = ["run", ...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];

const FORMS: Readonly<Record<"text" | "json", (line: string) => boolean>> = {
  text: (line) => /^\d{4}-\d\d-\d\dT[\d:.]+Z (?:ERROR|WARN |INFO |DEBUG) \S/.test(line),
  json: (line) => {
    try {
      return typeof JSON.parse(line).msg === "string";
    } catch {
      return false;
    }
  },
};

interface Started {
  readonly relay: LineProcess;
  readonly socket: string;
  readonly healthPort: number;
  readonly metricsPort: number;
}

/** Starts it with one Service on loopback. */
async function start(
  folder: string,
  { program = MAIN, args = [], by = [] }: {
    readonly program?: string;
    readonly args?: readonly string[];
    /** The command that starts it, such as `env`. */
    readonly by?: readonly string[];
  },
): Promise<Started> {
  const manifests = `${folder}/web.yaml`;
  await Deno.writeTextFile(
    manifests,
    manifestText([
      ...rawObjects(
        "Service",
        testService("web", { clusterIP: "127.96.8.1", ports: [{ port: unusedPort() }] }),
      ),
      ...rawObjects("EndpointSlice", testEndpointSlice("web", { endpoints: ["127.0.0.2"] })),
    ]),
  );
  const socket = `${folder}/control.sock`;
  const metricsPort = unusedPort();
  const healthPort = unusedPort();
  const line = [
    ...by,
    Deno.execPath(),
    ...DENO,
    `--config=${CONFIG}`,
    program,
    `--manifests=${manifests}`,
    "--proxy-mode=userspace",
    "--address-mode=none",
    ...ownFlags(folder, { healthPort, metricsPort }),
    ...args,
  ];
  const relay = new LineProcess(line[0]!, line.slice(1));
  return { relay, socket, healthPort, metricsPort };
}

function strayLines({ errors }: LineProcess, form: keyof typeof FORMS): string[] {
  const lines = errors.split("\n").slice(0, -1);
  assertNotEquals(lines.length, 0);
  return lines.filter((line) => !FORMS[form](line));
}

for (const form of ["text", "json"] as const) {
  Deno.test(`kube-relay that serves and is asked prints nothing but a log in ${form}`, () =>
    withFolder(async (folder) => {
      const { relay, socket, metricsPort } = await start(folder, {
        args: [`--logging-format=${form}`, "-v=1"],
      });
      await using _ = relay;
      await eventually(
        "it serves",
        async () =>
          (await askControl(socket, "/status").catch(() => undefined))?.phase === "serving",
      );
      for (const path of ["metrics", "status", "configz"]) {
        await (await fetch(`http://127.0.0.1:${metricsPort}/${path}`)).body?.cancel();
      }
      relay.signal("SIGTERM");
      assertEquals((await relay.status()).code, 0);
      assertEquals(strayLines(relay, form), []);
      assertEquals(relay.errors.includes("A library printed a message"), false, relay.errors);
    }));

  Deno.test(`kube-relay that a failure ends prints nothing but a log in ${form}`, () =>
    withFolder(async (folder) => {
      using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
      const { relay } = await start(folder, {
        args: [
          `--logging-format=${form}`,
          "--bind-address-hard-fail",
          `--healthz-bind-address=127.0.0.1:${taken.addr.port}`,
        ],
      });
      await using _ = relay;
      assertEquals((await relay.status()).code, 1);
      assertEquals(strayLines(relay, form), []);
      assert(relay.errors.includes("Exiting after an error"), relay.errors);
    }));

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.test(`kube-relay that ${signal} ends while it chooses a mode prints nothing but a log in ${form}`, () =>
      withFolder(async (folder) => {
        // A tool that waits, as for the lock of iptables.
        for (const tool of ["nft", "iptables", "iptables-nft", "iptables-legacy"]) {
          await Deno.writeTextFile(`${folder}/${tool}`, "#!/bin/sh\nexec tail -f /dev/null\n", {
            mode: 0o755,
          });
        }
        const { relay, healthPort, metricsPort } = await start(folder, {
          by: ["env", `PATH=${folder}:${Deno.env.get("PATH")}`],
          args: [`--logging-format=${form}`, "-v=1", "--proxy-mode=nftables"],
        });
        await using _ = relay;
        const ask = async (port: number, path: string) => {
          const answer = await fetch(`http://127.0.0.1:${port}/${path}`).catch(() => undefined);
          await answer?.body?.cancel();
          return answer?.status;
        };
        await eventually(
          "it answers while it waits",
          async () => await ask(healthPort, "livez") === 200,
        );
        for (const path of ["metrics", "healthz", "x"]) await ask(metricsPort, path);
        await ask(healthPort, "healthz");
        relay.signal(signal);
        assertEquals((await relay.status()).code, 0, relay.errors);
        assertEquals(strayLines(relay, form), []);
      }));
  }
}

/** kube-relay with libraries that print. */
const TALKATIVE = `
import { EventEmitter } from "node:events";
import process from "node:process";
import { runCommandLine } from "${import.meta.resolve("../lib/tools/cli/command_line.ts")}";
import { createMachine } from "${import.meta.resolve("../main.ts")}";

const running = runCommandLine(createMachine(), Deno.args, () => new AbortController().signal);
const { log } = console;
const timer = setInterval(() => {
  if (console.log === log) return;
  clearInterval(timer);
  for (const name of ["dir", "error", "log", "table", "warn"]) {
    console[name]("by console." + name, { a: 1 });
  }
  process.emitWarning("by Node", "DeprecationWarning");
  Promise.reject(new Error("by a promise"));
  queueMicrotask(() => {
    throw new Error("by a microtask");
  });
  const emitter = new EventEmitter();
  for (let count = 0; count < 20; count++) emitter.on("x", () => {});
}, 10);
Deno.exit(await running);
`;

Deno.test("kube-relay turns output of libraries, and uncaught errors, into lines of its log", () =>
  withFolder(async (folder) => {
    const program = `${folder}/talkative.ts`;
    await Deno.writeTextFile(program, TALKATIVE);
    const { relay } = await start(folder, { program, args: ["--logging-format=json"] });
    await using _ = relay;
    const texts = [
      "by console.table { a: 1 }",
      "DeprecationWarning: by Node",
      '"err":"by a promise"',
      '"err":"by a microtask"',
      "MaxListeners",
    ];
    await eventually(
      "all of it is printed",
      () => texts.every((text) => relay.errors.includes(text)),
    );
    assertEquals(strayLines(relay, "json"), []);
  }));
