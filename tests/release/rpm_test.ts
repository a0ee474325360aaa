/**
 * The life of the RPM package on a node, with real packets. Its scripts run in the same Debian, so the
 * packages that it requires are not looked for.
 *
 * @module
 */
import { assertEquals, assertMatch } from "@std/assert";
import { isMissing } from "../support/requirement.ts";
import { makeNext, PackageRoot, RELEASE, RELEASE_REQUIREMENTS } from "./package_root.ts";

const ignore = isMissing("tests/release/rpm_test.ts", RELEASE_REQUIREMENTS);

/** The database of rpm is made in the root; its tools are those of this machine. */
const RPM = `rm $R/usr/bin/deb-systemd-invoke
rpm() { command rpm --root $R --noplugins "$@"; }
`;

Deno.test({ name: "the RPM package", ignore }, async (t) => {
  await using root = await PackageRoot.create();
  const next = await makeNext("rpm.sh");
  try {
    await t.step("starts nothing, makes the user and the folder of manifests", async () => {
      const said = await root.play(
        `${RPM} rpm -i --nodeps $R/release/kube-relay_0.1.0_x86_64.rpm >&2
        cat $R/var/log/systemctl
        stat -c '%A %U %n' $R/etc/kube-relay/manifests | sed "s#$R##"
        echo "users: $(users), processes: $(says pgrep -x kube-relay)"
        rpm -V --nodeps kube-relay && inside kube-relay --version`,
        RELEASE,
      );
      assertMatch(
        said,
        /^systemctl daemon-reload\ndrwxr-xr-x root .*\/manifests\nusers: 1, processes: no\nkube-relay v0\.1\.0 .*\n$/,
      );
    });

    await t.step("an upgrade restarts the service without losing a request", async () => {
      const said = await root.play(
        `${RPM} rpm -i --nodeps $R/release/kube-relay_0.1.0_x86_64.rpm; serve
        read -r before <$R/run/service.pid; : >$R/var/log/systemctl
        asks_during rpm -U --nodeps $R/release/kube-relay_0.99.0_x86_64.rpm
        cat $R/var/log/systemctl
        read -r after <$R/run/service.pid
        echo "restarted: $(says test "$before" != "$after")"
        grep -c proxy-mode=nftables $R/etc/default/kube-relay
        rpm -q kube-relay
        inside systemctl stop kube-relay.service`,
        next,
      );
      assertEquals(
        said,
        [
          "requests failed: 0",
          "systemctl daemon-reload",
          "systemctl --quiet is-active kube-relay.service",
          "systemctl try-restart kube-relay.service kube-relay-userspace.service",
          "restarted: yes",
          "1",
          "kube-relay-0.99.0-1.x86_64",
          "",
        ].join("\n"),
      );
    });

    await t.step("a removal leaves rules and names the command that removes them", async () => {
      const said = await root.play(
        `${RPM} rpm -i --nodeps $R/release/kube-relay_0.1.0_x86_64.rpm; serve
        link=$R/etc/systemd/system/multi-user.target.wants/kube-relay.service
        ln -s /usr/lib/systemd/system/kube-relay.service $link
        rpm -e kube-relay >said; grep '^kube-relay: ' said
        echo "runs: $(says pgrep -x kube-relay), tables: $(rules)"
        ask && echo answers
        inside sh -c "$(sed -n 's/.*To remove them: //p' said)" >&2
        echo "tables: $(rules), left: $(cd $R && ls -d var/lib/kube-relay* var/cache/kube-relay* run/kube-relay usr/bin/kube* 2>/dev/null)"
        echo "enabled: $(says test -h $link)"`,
        RELEASE,
      );
      assertMatch(
        said,
        /^kube-relay: the rules .* stay\.\nkube-relay: To remove them: .*\nruns: no, tables: [1-9]\nanswers\ntables: 0, left: \nenabled: no\n$/,
      );
    });
  } finally {
    await Deno.remove(next, { recursive: true });
  }
});
