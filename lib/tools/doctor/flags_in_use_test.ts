import { assertEquals } from "@std/assert";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { startControlServer } from "../control/control_server.ts";
import { flagsInUse } from "./flags_in_use.ts";

const FILES: Readonly<Record<string, string>> = {
  "/lib/systemd/system/kube-relay-userspace.service": `[Service]
EnvironmentFile=-/etc/default/kube-relay
EnvironmentFile=-/etc/default/none
ExecStart=/usr/local/bin/kube-relay --proxy-mode=userspace $KUBE_RELAY_ARGS
`,
  "/etc/default/kube-relay":
    `# KUBE_RELAY_ARGS="--config=/x"\nKUBE_RELAY_ARGS="--manifests=/etc/m --routing"\n`,
};

function read(path: string): Promise<string> {
  const text = FILES[path];
  return text === undefined ? Promise.reject(new Deno.errors.NotFound()) : Promise.resolve(text);
}

/** Units without drop-ins. */
function files(readTextFile: (path: string) => Promise<string>) {
  return { readTextFile, readDir: () => ReadableStream.from<{ readonly name: string }>([]) };
}

Deno.test("flagsInUse() takes the given flags, else those of the process, else those of the unit", () =>
  withFolder(async (folder) => {
    const path = `${folder}/c.sock`;
    const given = { "proxy-mode": "nftables" } as const;
    assertEquals(await flagsInUse(given, path, files(read)), {
      flags: given,
      source: "this command line",
    });
    const asked = { json: true, "control-socket": path };
    assertEquals(await flagsInUse(asked, path, files(read)), {
      flags: { ...asked, "proxy-mode": "userspace", manifests: ["/etc/m"], routing: true },
      source: "/lib/systemd/system/kube-relay-userspace.service",
    });
    const server = await startControlServer({
      path,
      routes: { "/flags": () => Promise.resolve({ "proxy-mode": "ipvs", watch: true, odd: 1 }) },
    });
    assertEquals(await flagsInUse(asked, path, files(read)), {
      flags: { ...asked, "proxy-mode": "ipvs" },
      source: "the running process",
    });
    await server.stop();
    const none = () => Promise.reject(new Deno.errors.NotFound());
    assertEquals(await flagsInUse(asked, path, files(none)), {
      flags: asked,
      source: "a start without flags",
    });
  }));

const UNIT = "/etc/systemd/system/kube-relay.service";

function ofUnit(...lines: readonly string[]) {
  return flagsInUse(
    {},
    "/does/not/exist.sock",
    files((path) =>
      path === UNIT ? Promise.resolve(`[Service]\n${lines.join("\n")}\n`) : read(path)
    ),
  );
}

const UNITS: readonly (readonly [what: string, lines: readonly string[], flags: object])[] = [
  [
    "continued lines, quotes and variables",
    [
      `Environment="MORE=--routing --manifests='/etc/a b'" MODE=nftables`,
      "ExecStart=/usr/bin/kube-relay run \\",
      "  --proxy-mode=${MODE} \\",
      '  "--cni-config=/etc/c d" $MORE $NONE',
    ],
    {
      ...{ "proxy-mode": "nftables", "cni-config": "/etc/c d" },
      ...{ routing: true, manifests: ["/etc/a b"] },
    },
  ],
  [
    "the host name for %H in a variable, and not for %%H",
    [
      "Environment=NAME=%H MASTER=http://%%H",
      "ExecStart=/bin/kube-relay --hostname-override=${NAME} --master=${MASTER}",
    ],
    { "hostname-override": Deno.hostname(), master: "http://%H" },
  ],
  [
    "no variables before an empty value, as systemd does",
    [
      ...["EnvironmentFile=/etc/default/kube-relay", "Environment=MORE=--routing"],
      ...["Environment=", "EnvironmentFile=", "Environment=MODE=ipvs"],
      "ExecStart=/bin/kube-relay --proxy-mode=${MODE} $MORE $KUBE_RELAY_ARGS",
    ],
    { "proxy-mode": "ipvs" },
  ],
];

for (const [what, lines, flags] of UNITS) {
  Deno.test(`flagsInUse() reads of a unit ${what}`, async () => {
    assertEquals<object>(await ofUnit(...lines), { flags, source: UNIT });
  });
}

Deno.test("flagsInUse() applies the drop-ins of a unit by name, those in /etc first", async () => {
  const units: Record<string, string> = {
    [UNIT]: "[Service]\nEnvironment=MODE=ipvs\nExecStart=/bin/kube-relay --proxy-mode=${MODE}\n",
    [`/lib/systemd/system/kube-relay.service.d/10-mode.conf`]: "[Service]\nEnvironment=MODE=x\n",
    [`${UNIT}.d/10-mode.conf`]: "[Service]\nEnvironment=MODE=nftables\n",
    [`/run/systemd/system/kube-relay.service.d/15-run.conf`]: "[Service]\n",
    [`${UNIT}.d/20-start.conf`]:
      "[Service]\nExecStart=\nExecStart=/bin/kube-relay --proxy-mode=${MODE} --routing\n",
    [`${UNIT}.d/30-none.bak`]: "[Service]\nEnvironment=MODE=userspace\n",
  };
  const found = await flagsInUse({}, "/does/not/exist.sock", {
    readTextFile: (path) =>
      units[path] === undefined ? read("/none") : Promise.resolve(units[path]),
    async *readDir(folder) {
      const paths = Object.keys(units).filter((path) => path.startsWith(`${folder}/`));
      yield* await Promise.resolve(paths.map((path) => ({ name: path.slice(folder.length + 1) })));
    },
  });
  assertEquals(found, {
    flags: { "proxy-mode": "nftables", routing: true },
    source: [
      UNIT,
      `${UNIT}.d/10-mode.conf`,
      "/run/systemd/system/kube-relay.service.d/15-run.conf",
      `${UNIT}.d/20-start.conf`,
    ].join(", "),
  });
});

Deno.test("the drop-in for k3s has precedence over the settings for a start without a cluster", async () => {
  const deploy = new URL("../../../deploy/", import.meta.url);
  const installed: Readonly<Record<string, string>> = {
    [UNIT]: "kube-relay.service",
    [`${UNIT}.d/k3s.conf`]: "k3s.conf",
    "/etc/default/kube-relay": "kube-relay.default",
  };
  const { flags } = await flagsInUse({}, "/does/not/exist.sock", {
    readTextFile: (path) =>
      installed[path] === undefined
        ? read("/none")
        : Deno.readTextFile(new URL(installed[path], deploy)),
    readDir: (folder) => ReadableStream.from(folder === `${UNIT}.d` ? [{ name: "k3s.conf" }] : []),
  });
  assertEquals(flags.manifests, undefined);
  assertEquals(flags.kubeconfig, "/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig");
  assertEquals(flags["hostname-override"], Deno.hostname());
});

Deno.test("flagsInUse() says that it does not understand the command line of a unit", async () => {
  for (
    const line of [
      "/bin/sh -c 'kube-relay --routing'",
      "/usr/bin/deno run main.ts --routing",
      "/usr/bin/kube-relay --proxy-mode=%i",
      '/usr/bin/kube-relay "--config=/etc/c',
      "",
    ]
  ) {
    assertEquals(await ofUnit(`ExecStart=${line}`), {
      flags: {},
      source: "a start without flags",
      problem: `${UNIT}: the command line in ExecStart is not understood`,
    });
  }
});
