/**
 * Tests which flags systemd itself gives kube-relay by the units of `deploy/`, with and without the
 * drop-in for k3s. A manager of its own, in its own mount namespace, reads the units.
 */
import { assertEquals } from "@std/assert";
import { runTool } from "../support/drivers/run_tool.ts";
import { file, program, ROOT, testNeeding } from "../support/requirement.ts";
import { readDeployFile } from "../support/docs/deploy_files.ts";
import { withFolder } from "../support/with_folder.ts";

const MANAGER = "/lib/systemd/systemd";

const test = testNeeding("flags of the units", [
  ROOT,
  file(MANAGER, "the package systemd"),
  program("unshare"),
]);

/** The settings of a unit that say what is started; the others need a whole machine. */
const OF_START = /^(Environment|EnvironmentFile|UnsetEnvironment|ExecStart)=/;

/**
 * The manager wants a machine that systemd has booted, and control groups: it gets both in a namespace
 * of mounts. Its control groups are removed after it.
 */
const RUN_MANAGER = `set -e
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/user /run/cgroup
mount -t cgroup2 none /run/cgroup
own=/run/cgroup/kube-relay-test-$$
mkdir $own
echo $$ >$own/cgroup.procs
mount --bind $own /sys/fs/cgroup
status=0
XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME=$1/config \
  timeout 60 unshare --cgroup ${MANAGER} --user --unit=$2 --log-target=console || status=$?
echo $$ >/run/cgroup/cgroup.procs
find $own -depth -type d -exec rmdir {} +
exit $status`;

/** Returns the arguments with which systemd starts kube-relay by a unit with these drop-ins. */
async function startedBy(
  unit: string,
  options: {
    /** The text of `/etc/default/kube-relay`. */
    readonly defaults: string;
    readonly dropIns?: Readonly<Record<string, string>>;
  },
): Promise<string> {
  const started = await withFolder(async (folder) => {
    const onThisMachine = (text: string) =>
      text.replaceAll("/etc/default/kube-relay", `${folder}/defaults`)
        .replaceAll("/usr/local/bin/kube-relay", `${folder}/kube-relay`);
    const units = `${folder}/config/systemd/user`;
    await Deno.mkdir(`${units}/${unit}.d`, { recursive: true });
    await Deno.writeTextFile(`${folder}/defaults`, options.defaults);
    await Deno.writeTextFile(`${folder}/kube-relay`, `#!/bin/sh\necho "$*" >${folder}/started\n`);
    await Deno.chmod(`${folder}/kube-relay`, 0o755);
    const lines = (await readDeployFile(unit)).split("\n").filter((line) => OF_START.test(line));
    const ends = "[Unit]\nSuccessAction=exit\nFailureAction=exit\n[Service]\nType=oneshot\n";
    await Deno.writeTextFile(`${units}/${unit}`, ends + onThisMachine(lines.join("\n")));
    for (const [name, text] of Object.entries(options.dropIns ?? {})) {
      await Deno.writeTextFile(`${units}/${unit}.d/${name}`, onThisMachine(text));
    }
    await runTool("unshare", [
      ...["--mount", "--propagation", "private"],
      ...["sh", "-c", RUN_MANAGER, "sh", folder, unit],
    ]);
    return await Deno.readTextFile(`${folder}/started`);
  });
  return started.trim();
}

const K3S_FLAGS = /^Environment="KUBE_RELAY_K3S_ARGS=(.*)"$/m;

/** A later drop-in, as a package or a user may have it. */
const READS_DEFAULTS = "[Service]\nEnvironmentFile=-/etc/default/kube-relay\n";

for (
  const [unit, own] of [
    ["kube-relay.service", []],
    ["kube-relay-userspace.service", ["--proxy-mode=userspace"]],
  ] as const
) {
  Deno.test(`${unit} sets each variable of its command: systemd 254 warns about others`, async () => {
    const text = await readDeployFile(unit);
    const [command = ""] = /^ExecStart=.*$/m.exec(text) ?? [];
    const used = [...command.matchAll(/\$(\w+)/g)].map(([, name]) => name).sort();
    const [, set = ""] = /^Environment=(.*)$/m.exec(text) ?? [];
    assertEquals(set.split(" "), used.map((name) => `${name}=`));
  });

  test(`systemd starts ${unit} with the flags of /etc/default/kube-relay, and on k3s never`, async () => {
    const defaults = await readDeployFile("kube-relay.default");
    const manifests = [...own, "--manifests=/etc/kube-relay/manifests"].join(" ");
    assertEquals(await startedBy(unit, { defaults }), manifests);
    const dropIn = await readDeployFile("k3s.conf");
    const flags = K3S_FLAGS.exec(dropIn)![1]!.replace("%H", Deno.hostname());
    const onK3s = [...own, flags].join(" ");
    for (const more of [{}, { "a.conf": READS_DEFAULTS }, { "z.conf": READS_DEFAULTS }]) {
      const dropIns = { "k3s.conf": dropIn, ...more };
      assertEquals(await startedBy(unit, { defaults, dropIns }), onK3s, JSON.stringify(more));
    }
    assertEquals(await startedBy(unit, { defaults: "" }), own.join(" "));
  });
}
