
case $1 in
configure)
    if [ -n "$2" ]; then after_upgrade; else after_installation; fi
    ;;
esac
