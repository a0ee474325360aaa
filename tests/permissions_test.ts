/**
 * The permissions are written in one place; the tasks, the build, the unit and the CI follow it.
 */
import { assert, assertEquals } from "@std/assert";
import { ENVIRONMENT, SYSTEM_INTERFACES } from "../lib/os/permissions.ts";
import { TOOLS } from "../lib/os/tools.ts";

const ROOT = new URL("../", import.meta.url);

/** Files that say how something is run; text in them must not open everything. */
const RUN_BY = ["deno.json", "compile.sh", ".ci/run", "README.md", "CONTRIBUTING.md"];

interface Task {
  readonly command?: string;
}

async function read(path: string): Promise<string> {
  return await Deno.readTextFile(new URL(path, ROOT));
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(new URL(path, ROOT)).then(() => true, () => false);
}

async function filesBelow(folder: string, suffix: string): Promise<string[]> {
  const found: string[] = [];
  for await (const entry of Deno.readDir(new URL(folder, ROOT))) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) found.push(...await filesBelow(path, suffix));
    else if (path.endsWith(suffix)) found.push(path);
  }
  return found.sort();
}

async function taskCommands(): Promise<[string, string][]> {
  const { tasks } = JSON.parse(await read("deno.json")) as {
    tasks: Record<string, string | Task>;
  };
  return Object.entries(tasks).flatMap(([name, task]) => {
    const command = typeof task === "string" ? task : task.command;
    return command === undefined ? [] : [[name, command]];
  });
}

function flagValue(command: string, flag: string): string[] | undefined {
  const found = command.split(" ").find((word) => word.startsWith(`${flag}=`));
  return found?.slice(flag.length + 1).split(",");
}

/** Returns the lines of `text` that would grant all permissions. */
function blanketPermissions(text: string): string[] {
  return text.split("\n").flatMap((line, index) =>
    /(^|[\s"'(])(-A|--allow-all)(?=$|[\s"')])/.test(line) && !IPTABLES_RULE.test(line)
      ? [`line ${index + 1}: ${line}`]
      : []
  );
}

/** A rule as iptables-save prints it. */
const IPTABLES_RULE = /^-A [A-Z][\w-]+ -/;

Deno.test("blanketPermissions() finds a planted -A and --allow-all, and no look-alike", () => {
  assertEquals(blanketPermissions("deno run -A main.ts").length, 1);
  assertEquals(blanketPermissions('"x": "deno test --allow-all"').length, 1);
  assertEquals(blanketPermissions("declare -Ax names; git add -All").length, 0);
  assertEquals(blanketPermissions("-A POSTROUTING -j MASQUERADE").length, 0);
});

Deno.test("nothing is run with all permissions", async (t) => {
  const files = [...RUN_BY, ...await filesBelow("deploy", ""), ...await filesBelow("examples", "")];
  for (const path of files) {
    if (!await exists(path)) continue;
    await t.step(path, async () => assertEquals(blanketPermissions(await read(path)), []));
  }
});

Deno.test("the tasks of deno.json that run kube-relay never ask for permissions", async () => {
  const running = (await taskCommands()).filter(([, command]) => /^deno (run|test)/.test(command));
  assert(running.length > 0, "deno.json has no task that runs something");
  for (const [name, command] of running) {
    assert(command.includes(" --no-prompt"), `task ${name} lacks --no-prompt: ${command}`);
  }
});

Deno.test("the tasks of deno.json see no more of the system than the executable", async () => {
  for (const [name, command] of await taskCommands()) {
    assertEquals(/--allow-sys(?!=)/.test(command), false, `task ${name} names no interface`);
    const open = flagValue(command, "--allow-sys") ?? [];
    const more = open.filter((kind) => !SYSTEM_INTERFACES.includes(kind));
    assertEquals(more, [], `task ${name} opens more by --allow-sys than lib/os/permissions.ts`);
  }
});

Deno.test("the demo starts only Deno and programs of the table", async () => {
  // The demo names Deno by its path: npx puts none on the PATH that Deno would resolve it by.
  const demo = (Object.fromEntries(await taskCommands()).demo ?? "")
    .replace("$(deno eval -p 'Deno.execPath()')", "deno");
  const programs = flagValue(demo, "--allow-run") ?? [];
  assert(programs.includes("deno"), `the demo starts kube-relay by Deno: ${demo}`);
  const known = TOOLS.map((tool) => tool.name);
  assertEquals(programs.filter((name) => name !== "deno" && !known.includes(name)), []);
});

Deno.test("every environment variable that the code reads is in the table", async () => {
  const known = ENVIRONMENT.map((variable) => variable.name);
  const sources = [...await filesBelow("lib", ".ts"), ...await filesBelow("backends", ".ts")];
  if (await exists("main.ts")) sources.push("main.ts");
  for (const path of sources.filter((path) => !path.endsWith("_test.ts"))) {
    for (const [, name] of (await read(path)).matchAll(/Deno\.env\.get\("(\w+)"\)/g)) {
      assert(known.includes(name!), `${path} reads ${name}, which lib/os/permissions.ts lacks`);
    }
  }
});

const UNITS = ["deploy/kube-relay.service", "deploy/kube-relay-userspace.service"];

Deno.test("the units unset each variable of Deno and Node.js that the docs name, and no other", async () => {
  const section = /^## Variables of Deno and Node\.js\n([^#]*)/m.exec(
    await read("docs/permissions.md"),
  );
  const table = section![1]!.split("\n").filter((line) => line.startsWith("|")).join("\n");
  const named = [...table.matchAll(/`(\w+)`/g)].map(([, name]) => name).sort();
  assert(named.length > 5, `${named}`);
  for (const path of UNITS) {
    const lines = (await read(path)).matchAll(/^UnsetEnvironment=(.*)$/gm);
    assertEquals([...lines].flatMap(([, names]) => names!.split(" ")).sort(), named, path);
  }
});

for (const path of UNITS) {
  Deno.test(`the executable may read the paths that systemd passes in ${path}`, async () => {
    const unit = await read(path);
    const settings: [RegExp, string][] = [
      [/^Type=notify/m, "NOTIFY_SOCKET"],
      [/^WatchdogSec=/m, "WATCHDOG_USEC"],
      [/^CacheDirectory=/m, "CACHE_DIRECTORY"],
      [/^RuntimeDirectory=/m, "RUNTIME_DIRECTORY"],
      [/^#?LoadCredential=/m, "CREDENTIALS_DIRECTORY"],
    ];
    const known = ENVIRONMENT.map((variable) => variable.name);
    for (const [setting, variable] of settings) {
      assert(setting.test(unit), `${path} has no ${setting.source}`);
      assert(known.includes(variable), `lib/os/permissions.ts lacks ${variable}`);
    }
  });
}
