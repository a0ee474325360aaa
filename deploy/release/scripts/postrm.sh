
case $1 in
remove) after_removal ;;
purge)
    clean_up
    rm -rf /etc/kube-relay /var/lib/kube-relay /var/lib/private/kube-relay
    # shellcheck disable=SC2086 # one word per unit
    for unit in $units; do rm -f "/etc/systemd/system/multi-user.target.wants/$unit"; done
    ;;
esac
